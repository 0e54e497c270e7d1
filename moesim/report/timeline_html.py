"""A timeline as HTML: bars in an SVG that stretches to any width, names and times beside it that do not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table

from moesim.report.estimate import seconds
from moesim.report.html import fragment
from moesim.report.lanes import COLOURS, bars
from moesim.result import Timeline
from moesim.timeline.walk import busy_seconds

UNITS = 2000
"""Width of the picture in its own units: two for each pixel of a usual page."""
ROW, GAP = 20, 4
"""Height of a rank and the space below it. [pixels]"""
MANY = 120
"""Tasks of a rank from which the whole step is only a texture, and its beginning is drawn beside it."""
SOME = 48
"""Tasks of a rank that this beginning has."""
TICKS = 5
"""About how many times stand on the axis."""


@dataclass(frozen=True)
class Drawn:
    """A span of a timeline, ready for a template: paths by colour, ticks as (per cent of the width, label)."""

    title: str
    height: int
    ranks: int
    paths: tuple[tuple[str, str], ...]
    separated: bool
    ticks: tuple[tuple[float, str], ...]


def drawings(timeline: Timeline) -> list[Drawn]:
    """The whole step, and its beginning where the step has too many tasks to tell them apart."""
    makespan = float(timeline.run.makespan)
    tasks = len(timeline.run.start) / timeline.graph.num_ranks
    if tasks <= MANY:
        return [_drawn(timeline, "the whole step", makespan, True)]
    span = makespan * SOME / tasks
    return [
        _drawn(timeline, f"the first {SOME / tasks:.1%} of the step", span, True),
        _drawn(timeline, "the whole step", makespan, False),
    ]


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """Names and colours of the kinds of tasks that occur."""
    found = {bar.name for bar in bars(timeline)}
    return [(name, colour) for name, colour in COLOURS.items() if name in found]


def _drawn(timeline: Timeline, title: str, span: float, separated: bool) -> Drawn:
    ranks = timeline.graph.num_ranks
    spans: dict[str, list[list[int]]] = {}
    last: dict[tuple[str, int, float], list[int]] = {}
    for bar in sorted(bars(timeline), key=lambda one: one.start):
        if bar.start >= span:
            continue
        left, right = round(bar.start / span * UNITS), round(min(bar.end / span, 1.0) * UNITS)
        before = last.get((bar.colour, bar.rank, bar.top))
        if before is not None and (right == left or not separated) and left <= before[1]:
            before[1] = max(before[1], right)
            continue
        top, bottom = (round(bar.rank * (ROW + GAP) + place * ROW) for place in (bar.top, bar.bottom))
        last[bar.colour, bar.rank, bar.top] = [left, max(right, left + 1), top, bottom]
        spans.setdefault(bar.colour, []).append(last[bar.colour, bar.rank, bar.top])
    paths = tuple(
        (colour, "".join(f"M{left} {top}H{right}V{bottom}H{left}z" for left, right, top, bottom in found))
        for colour, found in spans.items()
    )
    return Drawn(title, ranks * (ROW + GAP), ranks, paths, separated, tuple(_ticks(span)))


def _ticks(span: float) -> list[tuple[float, str]]:
    """Round times along an axis."""
    rough = span / TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = min((size * factor for factor in (1, 2, 5, 10)), key=lambda one: abs(one - rough))
    scale, unit = (1.0, "s") if span >= 1 else (1e3, "ms") if span >= 1e-3 else (1e6, "us")
    count = math.floor(span / step * (1 + 1e-9))
    return [(place * step / span * 100, f"{place * step * scale:.4g} {unit}") for place in range(count + 1)]


def parts(timeline: Timeline) -> dict[str, object]:
    """What the template of a timeline needs."""
    return {"drawings": drawings(timeline), "legend": legend(timeline)}


def html(timeline: Timeline) -> str:
    """The timeline for a notebook."""
    return fragment("timeline", timeline=parts(timeline))


def renderable(timeline: Timeline) -> RenderableType:
    """How busy each rank is, for a terminal."""
    makespan = float(timeline.run.makespan)
    table = Table(title=f"timeline of {seconds(makespan)}", title_justify="left")
    for column in ("rank", "tasks", "busy", "idle"):
        table.add_column(column, justify="right")
    for rank, busy in enumerate(busy_seconds(timeline.graph, timeline.run)):
        tasks = len(timeline.graph.tasks_of(rank))
        table.add_row(str(rank), f"{tasks:,}", seconds(busy), f"{1 - busy / makespan:.1%}")
    return table
