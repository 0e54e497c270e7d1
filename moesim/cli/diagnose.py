"""``moesim diagnose``: which term explains the gap between a measured step and its estimate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from moesim.studies.diagnose import Diagnosis

HELP = """Say what may explain the gap between a measured step and its estimate, the likeliest first.

A term is likely where it explains the whole gap within its own 90 % interval. What a healthy run shows is the breakdown.
With --trace, where a measured step of one rank spends more than its estimate.
"""


def command(
    measured: Annotated[
        str, typer.Option("--measured", metavar="TIME|RATE", help="The measured step, such as 24.2s, or 1234tok/s.")
    ],
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="A profile of the run, one rank.")
    ] = None,
    stage: Annotated[int | None, typer.Option("--stage", metavar="N", help="Pipeline rank of the trace.")] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    if stage is not None and trace is None:
        raise SpecError.single("--stage", "", "is that of a trace", "give --trace FILE")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    seconds = grammar.measured_step(measured, problem)
    assert seconds is not None  # it is required

    from moesim.studies.diagnose import diagnose

    found = diagnose(problem, seconds)
    plain, shown = found.to_dict(), _tables(found)
    if trace is not None:
        from rich.console import Group

        from moesim.cli.trace_model import matched
        from moesim.report.trace_model import match_tables

        beside = matched(trace, problem, stage or 0)
        plain, shown = plain | {"trace": beside.to_dict()}, Group(shown, match_tables(beside))
    grammar.deliver(*grammar.with_basis(plain, shown, found.estimate, seconds), as_json, output)


def _tables(found: Diagnosis) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from moesim.report.estimate import NAMES, seconds

    answer = found.estimate
    where = "inside" if found.inside else "outside"
    error = answer.step_time_s / found.measured_s - 1
    head = Text(
        f"{answer.name}: measured {seconds(found.measured_s)}, predicted {seconds(answer.step_time_s)} ({error:+.1%}), "
        f"{where} of the 90 % interval {seconds(answer.low_s or 0.0)} to {seconds(answer.high_s or 0.0)}"
    )
    table = Table(title="what explains the gap alone, the likeliest first", title_justify="left")
    for name in ("term", "times its price or constant", "standard errors", "likely", "where to look"):
        table.add_column(name)
    for one in found.suspects[:8]:
        factor = "no factor does" if one.factor is None else f"x {one.factor:.2f}"
        table.add_row(one.name, factor, f"{one.errors:.1f}", "yes" if one.likely else "", one.look)
    alone = any(one.likely for one in found.suspects)
    told = (
        ""
        if alone
        else "No term explains the gap alone within its error: several are off, or the run does what is not modelled."
    )
    healthy = ", ".join(f"{NAMES[name]} {seconds(value)}" for name, value in answer.breakdown_s.items() if value)
    return Group(head, table, Text(told), Text(f"a healthy run shows: {healthy}", style="dim"))
