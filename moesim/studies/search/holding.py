"""What the ranks of a pipeline hold at their fullest, counted by kind of stage."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from moesim.timeline.schedule import Op, Program, backward_first, program_array
from moesim.timeline.schedules import find_schedule

T = TypeVar("T")
Counts = NDArray[np.int64]
SHAPES, KEPT = 8, 4096
"""Shapes whose programs are kept, and whose fullest moments are."""


class Recent(OrderedDict[Hashable, T]):
    """What was made last."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def of(self, key: Hashable, made: Callable[[], T]) -> T:
        """What is under a key, made where it is not known."""
        if key not in self:
            self[key] = made()
            if len(self) > self._size:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kind of each stage of a pipeline, and of each kind whether it holds the loss, and its layers that exchange rows."""

    of_stage: Counts
    ends: NDArray[np.bool_]
    routed: Counts


@dataclass(frozen=True, eq=False)
class Rank:
    """A pipeline rank that may have the peak of memory.

    ``key``: kinds of its stages, in their order; ``moments``: chunks of each kind that it holds, whole and then waiting for a weight
    gradient, at moments of which none has less of everything than another. (moments, 2 kinds) ``in_flight``: most layers
    whose rows are kept.
    """

    key: tuple[int, ...]
    moments: Counts
    in_flight: float


class Holdings:
    """What ranks of shapes hold, from programs in which they hold what they do in longer ones; the last made are kept."""

    def __init__(self) -> None:
        self._programs: Recent[Sequence[Program]] = Recent(SHAPES)
        self._ranks: Recent[tuple[Rank, ...]] = Recent(KEPT)

    def of(
        self, schedule: str, pp: int, micro_batches: int, vpp: int, extra_warmup: int, merged: bool = False
    ) -> Sequence[Program]:
        """Program of each rank of a shape; of pairs that are `merged`, the backward comes first."""
        item = find_schedule(schedule)
        shape = (pp, item.alike(pp, micro_batches, vpp), vpp, extra_warmup)

        def made() -> Sequence[Program]:
            programs = item.order(*shape)
            return [backward_first(one) for one in programs] if merged else programs

        return self._programs.of((schedule, *shape, merged), made)

    def ranks(
        self, schedule: str, shape: tuple[int, int, int, int], kinds: Kinds, *, merged: bool = False
    ) -> tuple[Rank, ...]:
        """Ranks of a shape that may have the peak; ``shape``: pp, micro-batches, vpp, extra warm-up."""
        pp, micro_batches, vpp, extra = shape
        alike = find_schedule(schedule).alike(pp, micro_batches, vpp)
        key = (schedule, pp, alike, vpp, extra, merged, *(part.tobytes() for part in vars(kinds).values()))
        return self._ranks.of(key, lambda: _fullest(self.of(schedule, *shape, merged=merged), kinds))


def _fullest(programs: Sequence[Program], kinds: Kinds) -> tuple[Rank, ...]:
    """What ranks hold by kind of stage, for those that may have the peak."""
    found: dict[tuple[Any, ...], Rank] = {}
    number = len(kinds.ends)
    for program in programs:
        key = tuple(kinds.of_stage[np.unique(program_array(program)[:, 1])].tolist())
        moments = held_rows(program, kinds.of_stage, number)
        in_flight = float((moments[:, :number] @ kinds.routed).max())
        found.setdefault((key, moments.tobytes(), in_flight), Rank(key, moments, in_flight))
    return _largest(list(found.values()), kinds)


def _largest(ranks: list[Rank], kinds: Kinds) -> tuple[Rank, ...]:
    """Ranks of which none holds at most what another one of the same stages does; those with a loss all stay."""
    found: list[Rank] = []
    for one in sorted(ranks, key=lambda rank: -int(rank.moments.sum(axis=1).max())):
        smaller = any(
            other.key == one.key and one.in_flight <= other.in_flight and _below(one.moments, other.moments)
            for other in found
        )
        if not smaller or kinds.ends[list(one.key)].any():
            found.append(one)
    return tuple(found)


def _below(rows: Counts, others: Counts) -> bool:
    """Whether each of some rows is at most one of the others everywhere."""
    return all(bool((row <= others).all(axis=1).any()) for row in rows)


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
