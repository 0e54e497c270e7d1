"""``moesim recompute`` and ``moesim max-seq``: memory against time."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar
from moesim.cli.varied import varied_problem

RECOMPUTE_HELP = (
    """Rank what could be recomputed by the memory it frees for its time; --target-free picks enough of it."""
)
LONGEST_HELP = """Find the longest sequence that fits, as the job stands and under each --vary."""


def recompute(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    target_free: Annotated[
        str | None, typer.Option("--target-free", metavar="BYTES", help="Memory to free, such as 6GiB.")
    ] = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    target = grammar.positive("--target-free", target_free, "bytes")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.memory_studies import ranking_table
    from moesim.studies.recomputing import ranked

    beside = grammar.measured_step(measured, problem)
    found = ranked(problem, target)
    grammar.deliver(*grammar.with_basis(found.to_dict(), ranking_table(found), found.base, beside), as_json, output)


def longest(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.VaryOption = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    variants = grammar.variants(vary)
    grammar.writable(output=output)
    problem = varied_problem(scenario, model, cluster, changes, vary, listed=True)

    from rich.console import Group

    from moesim.report.basis import basis_line
    from moesim.report.memory_studies import longest_table
    from moesim.studies import longest as study

    beside = grammar.measured_step(measured, problem)
    found = study.longest(problem, variants)
    rows = [one.to_dict(beside) for one in found]
    lines = [basis_line(row["basis"]) for row in rows if row["basis"] is not None]
    grammar.deliver(rows, Group(longest_table(found), *lines[:1]), as_json, output)
