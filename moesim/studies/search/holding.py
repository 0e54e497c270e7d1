"""What the ranks of a pipeline hold at their fullest, counted by kind of stage."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.timeline.schedule import Op, Program, backward_first, program_array
from moesim.timeline.schedules import find_schedule

Counts = NDArray[np.int64]
SHAPES = 8
"""Shapes whose programs are kept."""


class Holdings:
    """Programs of shapes in which ranks hold what they do in longer ones; the last ones made are kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], Sequence[Program]] = OrderedDict()

    def of(
        self, schedule: str, pp: int, micro_batches: int, vpp: int, extra_warmup: int, merged: bool = False
    ) -> Sequence[Program]:
        """Program of each rank of a shape; of pairs that are `merged`, the backward comes first."""
        item = find_schedule(schedule)
        alike = item.alike(pp, micro_batches, vpp)
        key = (schedule, pp, alike, vpp, extra_warmup, merged)
        if key not in self._known:
            programs = item.order(pp, alike, vpp, extra_warmup)
            self._known[key] = [backward_first(one) for one in programs] if merged else programs
            if len(self._known) > SHAPES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def held_rows(program: Program, kind: Counts, kinds: int) -> Counts:
    """Chunks of each kind that a rank holds, whole and waiting for a weight gradient, at its fullest moments.

    As :func:`moesim.timeline.schedule.kept_chunks` with stages of a kind taken together.

    Parameters
    ----------
    program
        What the rank runs.
    kind
        Kind of each stage of the pipeline. (stages,)
    kinds
        Number of kinds.

    Returns
    -------
    array
        (moments, 2 kinds)
    """
    slots = program_array(program)
    op, which = slots[:, 0], kind[slots[:, 1]]
    change = np.zeros((len(slots), 2 * kinds), dtype=np.int64)
    place = np.arange(len(slots))
    change[place, which] = (op == Op.F) * 1 - ((op == Op.BW) | (op == Op.B))
    change[place, kinds + which] = (op == Op.B) * 1 - (op == Op.W)
    rows = np.cumsum(change, axis=0)[:-1][op[1:] != Op.F]
    return largest_rows(rows[_distinct(rows)])


def _distinct(rows: Counts) -> Counts:
    """Places of one of each kind of rows of counts."""
    most = rows.max(axis=0, initial=0) + 1
    if np.log2(most.astype(float)).sum() < 62:  # a number stands for a row
        code = rows @ np.concatenate([[1], np.cumprod(most[:-1])])
        return np.unique(code, return_index=True)[1]
    return np.unique(rows, axis=0, return_index=True)[1]


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
