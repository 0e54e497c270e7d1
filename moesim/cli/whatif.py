"""``moesim whatif``: a job with something changed or broken, beside the job as it stands."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar
from moesim.cli.varied import apart

HELP = """Set a job with something changed or broken beside the job as it stands, term by term.

Each --change and each --fault is a column; where they touch different things, a last column has all of them. A change
takes paths as --set does, several with semicolons between ("ep=16; tp=1"), and numbers of the hardware and software also
by a factor: nic.bandwidth=x0.5. For lists of values moesim sweep ranks them.
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
        typer.Option("--fault", metavar="KIND:TARGET", help=grammar.FAULTS),
    ] = None,
    reoptimise: grammar.ReoptimiseOption = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    variants = grammar.changes_of(change, "--change")
    for one in variants:
        apart(one, "--change")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.whatif import whatif_table
    from moesim.studies.whatif import whatif

    beside = grammar.measured_step(measured, problem)
    found = whatif(problem, variants, fault or (), grammar.field_names(reoptimise))
    told = grammar.with_basis(found.to_dict(), whatif_table(found), found.comparison.base, beside)
    grammar.deliver(*told, as_json, output)
