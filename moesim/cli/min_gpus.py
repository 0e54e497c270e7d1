"""``moesim min-gpus``: the fewest nodes on which a job fits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moesim.cli import grammar
from moesim.cli.scale import node_counts

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
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    counts = node_counts(nodes)
    grammar.writable(output=output)
    axes = grammar.axes(vary)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.search import fewest_table
    from moesim.studies.fewest import fewest_nodes

    tried = fewest_nodes(problem, counts, axes)
    last = tried[-1]
    fits = bool(last.found.top)
    plain = {
        "nodes": last.nodes if fits else None,
        "gpus": last.gpus if fits else None,
        "tried": [one.to_dict() for one in tried],
    }
    shown: Any = fewest_table(tried)
    if fits:
        best = last.found.top[0].answer
        plain, shown = grammar.with_basis(plain, shown, best, grammar.measured_step(measured, problem))
    grammar.deliver(plain, shown, as_json, output)
