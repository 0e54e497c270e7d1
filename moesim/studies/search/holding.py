"""What the ranks of a pipeline hold at their fullest, counted once for each shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.timeline.schedule import kept_chunks
from moesim.timeline.schedules import find_schedule

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Holding:
    """Chunks that a rank holds, at each moment that differs.

    ``stages`` of the rank; ``whole`` chunks and those ``waiting`` for a weight gradient. (moments, stages)
    """

    stages: Counts
    whole: Counts
    waiting: Counts


class Holdings:
    """What the ranks of shapes hold; programs of a shape are made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Holding, ...]] = {}

    def of(self, schedule: str, pp: int, micro_batches: int, vpp: int, extra_warmup: int) -> tuple[Holding, ...]:
        """What each rank of a shape holds."""
        item = find_schedule(schedule)
        alike = item.alike(pp, micro_batches, vpp)
        key = (schedule, pp, alike, vpp, extra_warmup)
        if key not in self._known:
            programs = item.order(pp, alike, vpp, extra_warmup)
            self._known[key] = tuple(Holding(*kept_chunks(program)) for program in programs)
        return self._known[key]


def largest_rows(rows: Counts) -> Counts:
    """Rows of which none is at most another one everywhere.

    Examples
    --------
    >>> largest_rows(np.array([[1, 2], [2, 1], [1, 1], [2, 1]])).tolist()
    [[1, 2], [2, 1]]
    """
    left = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    kept = []
    while len(left):
        kept.append(left[0])
        left = left[(left > left[0]).any(axis=1)]
    return np.array(kept)
