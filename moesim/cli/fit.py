"""``moesim fit``: does it fit, what is tightest, what would make it fit."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar

HELP = """Say whether a job fits in memory: the fullest rank, what fills it, and the fewest changes that make it fit.

Exit code 0: it fits; 1: it does not; 2: it cannot be asked. Offloaded data are told for a node; --host-memory judges them.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    host_memory: Annotated[
        str | None, typer.Option("--host-memory", metavar="BYTES", help="Of a node, such as 1.5TB.")
    ] = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    host = grammar.positive("--host-memory", host_memory, "bytes")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.fit import fit_table
    from moesim.studies.fit import fit

    beside = grammar.measured_step(measured, problem)
    found = fit(problem, host)
    grammar.deliver(*grammar.with_basis(found.to_dict(), fit_table(found), found.answer, beside), as_json, output)
    if not found.fits:
        raise typer.Exit(1)
