"""``moesim pareto``: what more of one thing costs of another, over all layouts."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import blamed
from moesim.cli import grammar, search
from moesim.cli.varied import varied_problem

HELP = """Find every layout than which none is better in all of several objectives: step, memory, tokens-per-dollar.

It is the search over all legal combinations, with the same options; --vary cluster.count=16,32,64 --price 2.5/h
--of step,tokens-per-dollar sets the time against the money.
"""


def command(
    scenario: grammar.Scenario = None,
    of: Annotated[
        str, typer.Option("--of", metavar="A,B", help="Objectives: step, memory, tokens-per-dollar.")
    ] = "step,memory",
    vary: grammar.SearchOption = None,
    plot: grammar.PlotOption = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    price: grammar.PriceOption = None,
    changes: grammar.SetOption = None,
    checkpoint: search.CheckpointOption = None,
    scheduler: search.SchedulerOption = None,
    workers: search.WorkersOption = 1,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    several = search.objectives("--of", of)
    grammar.drawable(plot)
    grammar.writable((*grammar.ANSWERS, *grammar.TABLES), output=output, checkpoint=checkpoint, plot=plot)
    means = search.Means(workers, scheduler, checkpoint)
    problem = varied_problem(scenario, model, cluster, changes, vary)
    with blamed("--of", "--pareto"):
        found = search.searched(problem, vary, 1, "step", several, price, means)
    if plot is not None:
        from moesim.report.front import draw

        draw(found, plot)
    search.deliver(found, as_json, output)
