"""``moesim place``: the order of the parallel axes on the hardware."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar

HELP = """Price the step under every order of the parallel axes on the ranks: the best one, and what the usual one costs."""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Orders to print.")] = 10,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.estimator import estimate
    from moesim.report.fabric import placement_table
    from moesim.studies.placement import placements

    found = placements(problem)
    plain = found.to_dict()
    plain["ranked"] = plain["ranked"][:top]
    base = estimate(problem)
    told = grammar.with_basis(plain, placement_table(found, top), base, grammar.measured_step(measured, problem))
    grammar.deliver(*told, as_json, output)
