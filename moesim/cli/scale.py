"""``moesim scale``: the same job on more nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.cli.varied import apart

HELP = """Put a job on several numbers of nodes: step, efficiency, and what binds it at each.

Data-parallel replicas take the nodes; --fixed batch keeps the global batch (strong scaling), --fixed batch-per-gpu that
of a GPU (weak scaling).
"""
Nodes = Annotated[str, typer.Option("--nodes", metavar="N,N,...", help="Numbers of nodes, such as 2,4,8.")]


def node_counts(text: str) -> list[int]:
    """Return a list of whole numbers above zero; a `SpecError` where it is none."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() and int(word) > 0 for word in words):
        raise SpecError.single("--nodes", "", f"'{text}' is no list of node counts", "write for example --nodes 2,4,8")
    return [int(word) for word in dict.fromkeys(words)]


def command(
    nodes: Nodes,
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", metavar="PATH=VALUE[; ...]", help="The same with this changed; may be repeated."),
    ] = None,
    fixed: Annotated[str, typer.Option("--fixed", help="batch or batch-per-gpu.")] = "batch",
    measured: grammar.MeasuredOption = None,
    plot: grammar.PlotOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    counts = node_counts(nodes)
    others = grammar.changes_of(beside, "--beside")
    for one in others:
        apart(one, "--beside")
        if "cluster.count" in one:
            raise SpecError.single("--beside cluster.count", "", "--nodes says the number of nodes", "leave it out")
    grammar.drawable(plot)
    if plot is not None and others:
        raise SpecError.single(
            "--plot", "", "draws the job as it stands", "leave out --beside, or write its changes as --set"
        )
    grammar.writable(plot=plot, output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.base.errors import did_you_mean
    from moesim.report.scaling import beside_tables
    from moesim.studies.scaling import FIXED
    from moesim.studies.scaling_beside import scaled_beside

    if fixed not in FIXED:
        raise SpecError.single("--fixed", "", f"'{fixed}' is nothing to keep", did_you_mean(fixed, FIXED))
    step = grammar.measured_step(measured, problem)
    found = scaled_beside(problem, counts, fixed, others)
    if plot is not None:
        from moesim.report.figures import scaling

        scaling(found.ways[0].points).save(plot)
    grammar.deliver(*grammar.with_basis(found.to_dict(), beside_tables(found), found.first, step), as_json, output)
