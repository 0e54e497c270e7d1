"""Timelines of pipeline schedules as a picture: a panel for each schedule, a row for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moesim.report.figures import Picture, blank
from moesim.report.lanes import COLOURS, bars
from moesim.result import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTERS = 1 / 55
"""Width of a task, as a share of the picture, from which it carries the number of its micro-batch."""

EDGE, EDGES = 0.25, 0.2
"""Width of the line around a task, and how wide tasks are, in those that carry a number, before they have one."""


@dataclass(frozen=True)
class Panel:
    """A timeline and what stands above it."""

    title: str
    timeline: Timeline


def gantt(panels: Sequence[Panel]) -> Picture:
    """Draw the panels below each other, on one axis of time."""
    heights = [panel.timeline.graph.num_ranks + 1.2 for panel in panels]
    figure = blank(13, 0.9 + 0.32 * sum(heights))
    from matplotlib.patches import Patch

    axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    longest = max(float(panel.timeline.run.makespan) for panel in panels)
    scale, unit = (1e3, "ms") if longest < 1 else (1.0, "s")
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel, longest * LETTERS, scale)
    axes[-1].set_xlim(0, longest * scale)
    axes[-1].set_xlabel(f"time [{unit}]")
    handles = [Patch(facecolor=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(
        handles=handles,
        loc="outside upper right",
        ncols=len(handles),
        frameon=False,
        title="paler: a later chunk of the rank; numbers: micro-batches",
    )
    return Picture(figure)


def _draw(axis: Axes, panel: Panel, letters: float, scale: float) -> None:
    step, run = panel.timeline.graph, panel.timeline.run
    spans: dict[tuple[str, int, float, float], list[tuple[float, float]]] = {}
    for bar in bars(panel.timeline):
        key = (bar.colour, bar.rank, bar.top, bar.bottom)
        spans.setdefault(key, []).append((bar.start * scale, (bar.end - bar.start) * scale))
        whole = bar.bottom - bar.top == 1
        if bar.number >= 0 and bar.end - bar.start > letters * (1 if whole else 0.5):
            place = ((bar.start + bar.end) / 2 * scale, bar.rank - 0.4 + 0.8 * (bar.top + bar.bottom) / 2)
            size = 6.5 if whole else 4.5
            axis.text(*place, str(bar.number), ha="center", va="center", fontsize=size, color="#101010")
    edge = EDGE if (run.end - run.start).mean() > letters * EDGES else 0.0
    for (colour, rank, top, bottom), times in spans.items():
        place = (rank - 0.4 + 0.8 * top, 0.8 * (bottom - top))
        axis.broken_barh(times, place, facecolors=colour, edgecolor="white", linewidth=edge)
    axis.set_ylim(step.num_ranks - 0.4, -0.6)
    axis.set_yticks(range(step.num_ranks), [f"rank {rank}" for rank in range(step.num_ranks)], fontsize=7)
    axis.set_title(panel.title, fontsize=9, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
