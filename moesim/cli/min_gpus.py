"""``moesim min-gpus``: the fewest nodes on which a job fits."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar
from moesim.cli.scale import node_counts
from moesim.cli.varied import unreplaced, varied_problem

HELP = """Find the fewest nodes on which a job fits in memory, over all layouts, and the fastest layout there.

--vary as in search; without it tp, pp, ep, micro_batch, layout and recompute are varied. Numbers of nodes are tried from
the smallest.
"""


def command(
    nodes: Annotated[str, typer.Option("--nodes", metavar="N,N,...", help="Numbers of nodes to try.")],
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.SearchOption = None,
    each: Annotated[
        list[str] | None,
        typer.Option("--each", metavar="PATH=A,B", help="The fewest for each of these; may be repeated."),
    ] = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    counts = node_counts(nodes)
    grammar.writable(output=output)
    axes = grammar.axes(vary)
    cases = grammar.variants(each)
    unreplaced(changes, each, "--each")
    problem = varied_problem(scenario, model, cluster, changes, vary)

    from rich.console import Group
    from rich.text import Text

    from moesim.report.basis import basis_line
    from moesim.report.search import fewest_table
    from moesim.studies.fewest import fewest_of_each

    beside = grammar.measured_step(measured, problem)
    answers = fewest_of_each(problem, counts, axes, cases)
    found = [one.to_dict(beside) for one in answers]
    tables = []
    for one, plain in zip(answers, found, strict=True):
        tables += [*([Text(one.name)] if each else []), fewest_table(one.tried)]
        tables += [basis_line(plain["basis"])] if plain["basis"] is not None else []
    grammar.deliver({"cases": found} if each else found[0], Group(*tables), as_json, output)
