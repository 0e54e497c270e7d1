"""``moesim schedule``: pipeline schedules beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Compare pipeline schedules: step time, bubble, chunks and bytes kept and copies of parameters on each rank.

A schedule is a name (moesim specs schedules), with the chunks a rank behind a colon where several are possible, or a
CSV file of slots as PyTorch writes them.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", metavar="A,B:VPP,C.csv", help="What to compare; left out: all schedules."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the timelines (.svg, .png or .pdf).")
    ] = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(plot=plot, output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from rich.console import Group

    from moesim.report import schedules as report
    from moesim.report.basis import basis_line
    from moesim.report.gantt import Panel, drawable, write_gantt
    from moesim.studies.schedules import Wanted, compare, wanted
    from moesim.timeline.schedules import schedules

    drawable(plot)
    chosen = wanted(schedule) if schedule is not None else [Wanted(name) for name in schedules.names()]
    rows = compare(problem, chosen, grammar.measured_step(measured, problem))
    if all(row.refused for row in rows):
        raise SpecError.single("--schedule", "", "; ".join(str(one) for row in rows for one in row.refused))
    if plot is not None:
        panels = [
            Panel(f"{row.name}, vpp {row.vpp}: bubble {row.bubble_fraction:.1%}", row.timeline)
            for row in rows
            if row.timeline is not None
        ]
        write_gantt(plot, panels)
    lines = [basis_line(row.basis) for row in rows if row.basis is not None]
    grammar.deliver([row.to_dict() for row in rows], Group(report.table(rows), *lines[:1]), as_json, output)
