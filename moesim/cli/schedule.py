"""``moesim schedule``: pipeline schedules beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Compare pipeline schedules: step time, bubble, chunks and bytes kept and copies of parameters on each rank.

Without a job, --times F,B,W with --pp and --micro-batches compares them alone: forward, backward for inputs and for
weights in any unit, no messages. A schedule is a name (moesim specs schedules), with the chunks a rank behind a colon where several are possible, or a
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
    plot: grammar.PlotOption = None,
    times: Annotated[
        str | None, typer.Option("--times", metavar="F,B,W", help="Of a rank's layers, without a job: 1,1,1.")
    ] = None,
    pp: Annotated[int | None, typer.Option("--pp", min=1, max=1024, help="Ranks, with --times.")] = None,
    micro_batches: Annotated[
        int | None, typer.Option("--micro-batches", min=1, max=16384, help="Of a step, with --times.")
    ] = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.drawable(plot)
    grammar.writable(plot=plot, output=output)
    if times is not None or pp is not None or micro_batches is not None:
        given = (scenario, model, cluster, changes, plot, measured)
        if times is None or pp is None or micro_batches is None or any(one is not None for one in given):
            what = "--times, --pp and --micro-batches go together, without a job"
            raise SpecError.single("--times", "", what, "write for example --times 1,1,1 --pp 8 --micro-batches 32")
        _alone(schedule, times, pp, micro_batches, as_json, output)
        return
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from rich.console import Group

    from moesim.report import schedules as report
    from moesim.report.basis import basis_line
    from moesim.report.gantt import Panel, gantt
    from moesim.studies.schedules import Wanted, compare, wanted
    from moesim.timeline.schedules import schedules

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
        gantt(panels).save(plot)
    lines = [basis_line(row.basis) for row in rows if row.basis is not None]
    grammar.deliver([row.to_dict() for row in rows], Group(report.table(rows), *lines[:1]), as_json, output)


def _alone(schedule: str | None, times: str, pp: int, micro_batches: int, as_json: bool, output: Path | None) -> None:
    """Compare schedules without a job."""
    from rich.table import Table

    from moesim.studies.ideal_schedules import Durations, ideal
    from moesim.studies.schedules import Wanted, wanted
    from moesim.timeline.schedules import schedules

    chosen = wanted(schedule) if schedule is not None else [Wanted(name) for name in schedules.names()]
    rows = [ideal(one, Durations.told(times), pp, micro_batches) for one in chosen]
    if all(row.refused for row in rows):
        raise SpecError.single("--schedule", "", "; ".join(str(one) for row in rows for one in row.refused))
    table = Table("schedule", "vpp", "makespan", "idle / work", "activations", "copies of weights", box=None)
    for row in rows:
        cells = [str(row.refused[0])] if row.refused else row.cells()
        table.add_row(row.name, str(row.vpp), *cells)
    grammar.deliver([row.to_dict() for row in rows], table, as_json, output)
