"""Timelines of pipeline schedules as a picture: a panel for each schedule, a row for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from moesim.base.errors import SpecError
from moesim.result import Timeline
from moesim.timeline.tasks import BW, GATHER, OPTIMIZER, OV, REDUCE, B, F, W

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png", ".pdf")
COLOURS = {
    "forward": "#3b7dd8",
    "backward": "#e2791b",
    "weight gradient": "#3f9e4d",
    "optimizer": "#8a8a8a",
    "data parallel": "#8d5fb8",
}
PALEST = 0.55
"""How far the last chunk of a rank is mixed with white."""
LETTERS = 1 / 55
"""Width of a task, as a share of the picture, from which it carries the number of its micro-batch."""

EDGE, EDGES = 0.25, 0.2
"""Width of the line around a task, and how wide tasks are, in those that carry a number, before they have one."""


@dataclass(frozen=True)
class Panel:
    """A timeline and what stands above it."""

    title: str
    timeline: Timeline


def drawable(path: Path | None) -> None:
    """Refuse a file whose name asks for no kind of picture."""
    if path is not None and path.suffix not in SUFFIXES:
        raise SpecError.single("--plot", "", f"'{path.name}' names no kind of picture", "one of " + ", ".join(SUFFIXES))


def write_gantt(path: Path, panels: Sequence[Panel]) -> None:
    """Draw the panels below each other, on one axis of time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    heights = [panel.timeline.graph.num_ranks + 1.2 for panel in panels]
    figure = Figure(figsize=(13, 0.9 + 0.32 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
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
    figure.savefig(path, dpi=130)


def _draw(axis: Axes, panel: Panel, letters: float, scale: float) -> None:
    step, run = panel.timeline.graph, panel.timeline.run
    tasks = step.tasks
    shade = _shades(step.stage_rank)
    bars: dict[tuple[str, int, float, float], list[tuple[float, float]]] = {}
    columns = (tasks.kind, tasks.rank, tasks.stage, tasks.micro_batch, tasks.back_stage, tasks.back_micro_batch)
    for kind, rank, stage, i, back_stage, back_i, start, end in zip(
        *(column.tolist() for column in columns), run.start.tolist(), run.end.tolist(), strict=True
    ):
        parts: list[tuple[str, int, int, float, float]] = []
        if kind == OV:  # a pair runs as one task: its forward is drawn above its backward
            parts = [("forward", stage, i, 0.0, 0.5), ("backward", back_stage, back_i, 0.5, 1.0)]
        elif kind in (F, BW, B, W):
            name = {F: "forward", W: "weight gradient"}.get(kind, "backward")
            parts = [(name, stage, i, 0.0, 1.0)]
        elif kind == OPTIMIZER:
            parts = [("optimizer", -1, -1, 0.0, 1.0)]
        elif kind in (REDUCE, GATHER):  # on the other lane of the rank: a line below its tasks
            parts = [("data parallel", -1, -1, 1.02, 1.14)]
        for name, where, number, top, bottom in parts:
            key = (_mixed(COLOURS[name], shade.get(where, 0.0)), rank, top, bottom)
            bars.setdefault(key, []).append((start * scale, (end - start) * scale))
            if number >= 0 and end - start > letters * (1 if bottom - top == 1 else 0.5):
                place = ((start + end) / 2 * scale, rank - 0.4 + 0.8 * (top + bottom) / 2)
                size = 6.5 if bottom - top == 1 else 4.5
                axis.text(*place, str(number), ha="center", va="center", fontsize=size, color="#101010")
    edge = EDGE if (run.end - run.start).mean() > letters * EDGES else 0.0
    for (colour, rank, top, bottom), spans in bars.items():
        place = (rank - 0.4 + 0.8 * top, 0.8 * (bottom - top))
        axis.broken_barh(spans, place, facecolors=colour, edgecolor="white", linewidth=edge)
    axis.set_ylim(step.num_ranks - 0.4, -0.6)
    axis.set_yticks(range(step.num_ranks), [f"rank {rank}" for rank in range(step.num_ranks)], fontsize=7)
    axis.set_title(panel.title, fontsize=9, loc="left")
    axis.spines[["top", "right"]].set_visible(False)


def _shades(stage_rank: tuple[int, ...]) -> dict[int, float]:
    """How pale each stage is: the chunks of a rank from 0 up."""
    ranks = np.array(stage_rank)
    found: dict[int, float] = {}
    for rank in range(int(ranks.max()) + 1):
        own = np.flatnonzero(ranks == rank)
        found |= {int(stage): PALEST * place / max(len(own) - 1, 1) for place, stage in enumerate(own)}
    return found


def _mixed(colour: str, white: float) -> str:
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)
