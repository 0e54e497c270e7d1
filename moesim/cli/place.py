"""``moesim place``: the order of the parallel axes on the hardware."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.words import changes_in_words
from moesim.cli import grammar
from moesim.cli.varied import varied_problem

HELP = """Price the step under every order of the parallel axes on the ranks: the best one, and what the usual one costs."""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.VaryOption = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Orders to print.")] = 10,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    cases = grammar.variants(vary)
    grammar.writable(output=output)
    problem = varied_problem(scenario, model, cluster, changes, vary)

    from rich.console import Group
    from rich.text import Text

    from moesim.estimator import estimate
    from moesim.report.basis import basis_line
    from moesim.report.fabric import placement_table
    from moesim.studies.basis import basis
    from moesim.studies.placement import placements

    beside = grammar.measured_step(measured, problem)
    rows, tables = [], []
    for case in cases:
        changed = problem.with_changes(case, "--vary") if case else problem
        found = placements(changed)
        plain = found.to_dict()
        plain["ranked"] = plain["ranked"][:top]
        name = changes_in_words(case)
        told = basis(estimate(changed), beside, name)
        rows.append(({"set": case} if vary else {}) | plain | {"basis": told})
        tables.append(Group(*([Text(name)] if vary else []), placement_table(found, top), basis_line(told)))
    grammar.deliver({"cases": rows} if vary else rows[0], Group(*tables), as_json, output)
