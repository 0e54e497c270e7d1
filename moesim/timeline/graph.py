"""Static task graphs: tasks on lanes, with the tasks they wait for.

A lane runs its tasks one at a time, in the order they were added; besides the task before it on its lane, a task may
wait for any others. A graph holds no seconds: `moesim.timeline.run` puts durations on it, one or many columns at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moesim.timeline.whole import whole_starts

IntArray = NDArray[np.int64]


class Level(NamedTuple):
    """Tasks that wait only for tasks of earlier levels: their place, and the rows each gathers."""

    tasks: slice
    lane_pred: IntArray
    preds: tuple[tuple[IntArray, IntArray], ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """Tasks in level order; a level is one more than the highest level a task waits for.

    Parameters
    ----------
    duration_row
        Row of the durations that each of the n tasks takes. (n,)
    lane
        Lane of each task. (n,)
    preds
        Tasks waited for; column 0 is the task before it on its lane, n stands for none. (n, k)
    delay_row
        Row of the delays between the end of `preds` and the start; row 0 is no delay. (n, k)
    levels
        Where each level lies.
    added
        Place of each task in the order in which tasks were added. (n,)
    names
        Keys in the order in which tasks were added.
    """

    duration_row: IntArray
    lane: IntArray
    preds: IntArray
    delay_row: IntArray
    levels: tuple[slice, ...]
    added: IntArray
    names: Sequence[Hashable]

    @property
    def num_tasks(self) -> int:
        """Number of tasks, n."""
        return len(self.lane)

    @cached_property
    def keys(self) -> tuple[Hashable, ...]:
        """Keys of the tasks, in the order of the arrays."""
        return tuple(self.names[i] for i in self.added.tolist())

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        return {key: index for index, key in enumerate(self.keys)}

    def index(self, key: Hashable) -> int:
        """Place of a task in the arrays."""
        return self._index[key]

    def tasks_of(self, lane: int) -> IntArray:
        """Tasks of a lane, in the order in which it runs them."""
        return np.flatnonzero(self.lane == lane)

    @cached_property
    def last_tasks(self) -> IntArray:
        """Last task of each lane, one of which ends last."""
        by_lane = np.argsort(self.lane, kind="stable")
        ends = np.flatnonzero(np.diff(self.lane[by_lane], append=-1))
        return np.sort(by_lane[ends])

    @cached_property
    def plan(self) -> tuple[Level, ...]:
        """What a run gathers, level by level: only the columns of `preds` that a level uses."""
        preds, delay_rows = np.ascontiguousarray(self.preds.T), np.ascontiguousarray(self.delay_row.T)
        used = (preds[1:] != self.num_tasks) * np.arange(1, len(preds))[:, None]
        before, columns = preds[0], list(zip(preds[1:], delay_rows[1:], strict=True))
        starts = [level.start for level in self.levels]
        widths = np.maximum.reduceat(used.max(axis=0), starts).tolist() if starts and len(used) else [0] * len(starts)
        return tuple(
            Level(
                level,
                before[level],
                tuple([(waits[level], rows[level]) for waits, rows in columns[:width]]),
            )
            for level, width in zip(self.levels, widths, strict=True)
        )


def level_graph(
    lane: IntArray,
    duration_row: IntArray,
    preds: IntArray,
    delay_row: IntArray,
    names: Sequence[Hashable],
    level: IntArray | None = None,
) -> Graph:
    """Graph of tasks given as arrays in the order in which they are added.

    Parameters
    ----------
    lane, duration_row
        As in `Graph`. (n,)
    preds, delay_row
        Tasks waited for beside the one before on the lane, n for none, and the rows of the delays. (n, k - 1)
    names
        A key for each task.
    level
        Where it is known: one more than the highest level a task waits for, from 0. (n,)

    Raises
    ------
    ValueError
        If tasks wait for each other in a circle.
    """
    n = len(lane)
    if preds.shape[1] > 1:  # what is there to the left, so that most levels gather one column
        sides = np.argsort(preds == n, axis=1, kind="stable")
        preds, delay_row = np.take_along_axis(preds, sides, axis=1), np.take_along_axis(delay_row, sides, axis=1)
    used = (preds != n).any(axis=0)
    preds, delay_row = preds[:, used], delay_row[:, used]
    by_lane = np.argsort(lane, kind="stable")
    first = np.ones(n, dtype=bool)
    first[1:] = lane[by_lane[1:]] != lane[by_lane[:-1]]
    before = np.full(n, n)
    before[by_lane[1:]] = np.where(first[1:], n, by_lane[:-1])

    if level is None:
        level = whole_starts(lane, preds, np.ones(n, np.int64))
    if level is not None:
        added = by_lane[np.argsort(level[by_lane], kind="stable")]
        bounds = np.cumsum([0, *np.bincount(level)]).tolist()
    else:
        steps, finished = _steps(by_lane, np.flatnonzero(first), preds)
        if not finished[:n].all():
            raise ValueError(f"deadlock: {_circle(finished, np.column_stack([before, preds]), names)}")
        added = np.concatenate([*steps, np.empty(0, np.int64)])
        bounds = np.cumsum([0, *map(len, steps)]).tolist()
    place = np.empty(n + 1, dtype=np.int64)
    place[added] = np.arange(n)
    place[n] = n
    return Graph(
        duration_row=duration_row[added],
        lane=lane[added],
        preds=place[np.column_stack([before, preds])[added]],
        delay_row=np.column_stack([np.zeros(n, np.int64), delay_row])[added],
        levels=tuple(slice(low, high) for low, high in pairwise(bounds)),
        added=added,
        names=names,
    )


def _steps(by_lane: IntArray, starts: IntArray, preds: IntArray) -> tuple[list[IntArray], NDArray[np.bool_]]:
    """Run every lane in lockstep, a task of unit length a step; return the tasks of each step and what was finished."""
    n = len(by_lane)
    # Each lane ends in task n + 1, which waits for itself; task n stands for "none" and is finished from the start.
    queue = np.insert(by_lane, [*starts[1:], n], n + 1) if n else by_lane
    head = starts + np.arange(len(starts))
    columns = [np.append(column, [n, n + 1]) for column in preds.T] or [np.append(np.full(n + 1, n), n + 1)]
    finished = np.zeros(n + 2, dtype=bool)
    finished[n] = True
    steps: list[IntArray] = []
    while n:
        candidates = queue.take(head)
        ready = finished.take(columns[0].take(candidates))
        for column in columns[1:]:
            ready &= finished.take(column.take(candidates))
        now = candidates[ready]
        if not now.size:
            break
        finished[now] = True
        head += ready
        steps.append(now)
    return steps, finished


def _circle(finished: NDArray[np.bool_], preds: IntArray, names: Sequence[Hashable]) -> str:
    """Tasks that wait for each other, as text."""
    seen: list[int] = []
    task = int(np.flatnonzero(~finished[: len(preds)])[0])
    while task not in seen:
        seen.append(task)
        task = next(int(pred) for pred in preds[task] if not finished[pred])
    circle = [*seen[seen.index(task) :], task]
    shown = [str(names[i]) for i in (circle if len(circle) <= 8 else [*circle[:7], task])]
    if len(circle) > 8:
        shown.insert(-1, "...")
    return " waits for ".join(shown)


class GraphBuilder:
    """Collects tasks one by one; for small graphs, such as the operations of a stage.

    Examples
    --------
    >>> from moesim.timeline.run import run
    >>> builder = GraphBuilder()
    >>> builder.task("compute", lane=0, duration_row=0)
    >>> builder.task("send", lane=1, duration_row=1, preds=["compute"])
    >>> builder.task("more compute", lane=0, duration_row=0)
    >>> float(run(builder.build(), [2.0, 3.0]).makespan)
    5.0
    """

    def __init__(self) -> None:
        self._index: dict[Hashable, int] = {}
        self._lane: list[int] = []
        self._duration_row: list[int] = []
        self._preds: list[list[tuple[Hashable, int]]] = []

    def task(
        self,
        key: Hashable,
        lane: int,
        duration_row: int,
        preds: Iterable[Hashable] = (),
        delayed: Iterable[tuple[Hashable, int]] = (),
    ) -> None:
        """Add a task behind those of its lane.

        Parameters
        ----------
        key
            Name of the task, unique in the graph.
        lane, duration_row
            Lane it runs on, and the row of the durations it takes.
        preds
            Keys of tasks it waits for; they may be added later.
        delayed
            The same with a row of the delays: (key, delay row).
        """
        if key in self._index:
            raise ValueError(f"task {key} is added twice")
        self._index[key] = len(self._lane)
        self._lane.append(lane)
        self._duration_row.append(duration_row)
        self._preds.append([*((pred, 0) for pred in preds), *delayed])

    def build(self) -> Graph:
        """Graph of the tasks added so far; tasks that wait for each other in a circle are a ValueError."""
        n = len(self._lane)
        names = tuple(self._index)
        width = max(map(len, self._preds), default=0)
        preds, delay_row = np.full((n, width), n), np.zeros((n, width), dtype=np.int64)
        for task, waits in enumerate(self._preds):
            for column, (key, row) in enumerate(waits):
                if key not in self._index:
                    raise ValueError(f"task {names[task]} waits for {key}, which is not in the graph")
                preds[task, column], delay_row[task, column] = self._index[key], row
        lane, rows = np.array(self._lane, dtype=np.int64), np.array(self._duration_row, dtype=np.int64)
        return level_graph(lane, rows, preds, delay_row, names)
