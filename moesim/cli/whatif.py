"""``moesim whatif``: a job with something changed or broken, beside the job as it stands."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import Collector
from moesim.cli import grammar

HELP = """Set a job with something changed or broken beside the job as it stands, term by term.

Each --change and each --fault is a column; where they touch different things, a last column has all of them. A change
takes paths as --set does, several with semicolons between ("ep=16; tp=1"), and numbers of the hardware and software also
by a factor: nic.bandwidth=x0.5. For lists of values moesim sweep ranks them. --offload experts asks instead whether the
link to the host (--h2d) hides behind the layer that runs.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--change", metavar="PATH=VALUE[; ...]", help="What to change; may be repeated."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="KIND:TARGET",
            help="nic:node3.rail5, rail:5, switch:spine0, link:A-B, degrade:spine=0.5 or slow:node3=0.8.",
        ),
    ] = None,
    offload: Annotated[
        str | None, typer.Option("--offload", metavar="experts", help="Move experts to the host.")
    ] = None,
    h2d: Annotated[
        str | None, typer.Option("--h2d", metavar="RATE,RATE", help="Of the link to the host, such as 450GB/s.")
    ] = None,
    reoptimise: grammar.ReoptimiseOption = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    variants = grammar.changes_of(change, "--change")
    rates = _rates(offload, h2d, bool(change or fault or reoptimise or measured))
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)
    if offload is not None:
        from moesim.report.whatif import offload_table
        from moesim.studies.expert_offload import expert_offload

        moved = expert_offload(problem, rates)
        grammar.deliver(moved.to_dict(), offload_table(moved), as_json, output)
        return

    from moesim.report.whatif import whatif_table
    from moesim.studies.whatif import whatif

    found = whatif(problem, variants, fault or (), grammar.field_names(reoptimise))
    beside = grammar.measured_step(measured, problem)
    told = grammar.with_basis(found.to_dict(), whatif_table(found), found.comparison.base, beside)
    grammar.deliver(*told, as_json, output)


def _rates(offload: str | None, h2d: str | None, others: bool) -> list[float]:
    """Bandwidths of the link; one issue for each thing that does not go together."""
    problems = Collector()
    if offload not in (None, "experts"):
        fix = "experts, or --change optimizer_offload=1.0, --change activation_offload=0.5"
        problems.add("--offload", "", f"'{offload}' is not asked this way", fix)
    if offload is not None and others:
        problems.add(
            "--offload",
            "",
            "is asked alone",
            "leave out --change, --fault, --reoptimise, --measured; --set changes the job",
        )
    if offload is None and h2d is not None:
        problems.add(
            "--h2d", "", "is the link of --offload", "add --offload experts, or --change gpu.pcie_bandwidth=..."
        )
    problems.raise_if_any()
    found = [grammar.positive("--h2d", text, "bandwidth") for text in grammar.values(h2d or "")]
    return [rate for rate in found if rate is not None]
