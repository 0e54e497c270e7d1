"""The bars of a timeline: what stands where, for every picture of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from moesim.result import Timeline
from moesim.timeline.tasks import BW, GATHER, OPTIMIZER, OV, REDUCE, B, F, W

COLOURS = {
    "forward": "#3b7dd8",
    "backward": "#e2791b",
    "weight gradient": "#169b78",
    "optimizer": "#8a8a8a",
    "data parallel": "#8d5fb8",
}
PALEST = 0.55
"""How far the last chunk of a rank is mixed with white."""


class Bar(NamedTuple):
    """A task, or one half of a pair that runs as one.

    ``number``: its micro-batch, -1 where it has none; ``top`` and ``bottom`` within the row of its rank. Times in s.
    """

    name: str
    colour: str
    rank: int
    number: int
    start: float
    end: float
    top: float
    bottom: float


def bars(timeline: Timeline) -> Iterator[Bar]:
    """Every bar of a timeline, task by task."""
    tasks, run = timeline.graph.tasks, timeline.run
    shade = _shades(timeline.graph.stage_rank)
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
            colour = _mixed(COLOURS[name], shade.get(where, 0.0))
            yield Bar(name, colour, rank, number, start, end, top, bottom)


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
