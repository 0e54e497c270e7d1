"""``moesim sensitivity``: which constants move the step, and which of them are not known well."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar

HELP = """Rank constants by how much the step moves with them, and by how much of the interval they make."""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of each table.")] = 12,
    plot: grammar.PlotOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.drawable(plot)
    grammar.writable(plot=plot, output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.estimator import estimate
    from moesim.report import sensitivity as report

    answer = estimate(problem)
    if plot is not None:
        from moesim.report.figures import tornado

        tornado(answer, top).save(plot)
    grammar.deliver(report.sensitivity_data(answer, top), report.sensitivity_table(answer, top), as_json, output)
