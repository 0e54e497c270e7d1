"""The one longest-path routine: a task starts when its lane is free and what it waits for is done.

Scalar durations give the timeline that is drawn, array durations the step times of a batch; every column of a batch
has the bits of the scalar run, since both are the same additions and maxima.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from moesim.timeline.graph import Graph, IntArray
from moesim.timeline.whole import whole_starts

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run:
    """Start and end of every task.

    Parameters
    ----------
    graph
        What was run.
    start, end
        In the order of the tasks of the graph. (n, *batch) [s]
    delays
        The delays of the run. (rows, *batch) [s]
    """

    graph: Graph
    start: FloatArray
    end: FloatArray
    delays: FloatArray

    @property
    def makespan(self) -> FloatArray:
        """End of the last task. (*batch) [s]."""
        return np.asarray(self.end.max(axis=0, initial=0.0))

    def at(self, *index: int) -> Run:
        """One column of a batch, as a scalar run."""
        column: Any = (slice(None), *index)
        return Run(self.graph, self.start[column], self.end[column], self.delays[column])

    @cached_property
    def binding(self) -> list[int]:
        """The task of a scalar run that each one starts after: of several the one on its lane, then the lowest; n for none."""
        none = self.graph.num_tasks
        preds = self.graph.preds
        ties = (self.arrivals(slice(None)) == self.start[:, None]) & (preds < none)
        lowest = np.where(ties, preds, none).min(axis=1, initial=none)
        found: list[int] = np.where(ties[:, 0], preds[:, 0], lowest).tolist()
        return found

    def arrivals(self, tasks: Any) -> FloatArray:
        """When the things that tasks of a scalar run wait for are there, by column of `Graph.preds`; 0 for none. (n, k) [s]."""
        preds, last = self.graph.preds[tasks], self.graph.num_tasks - 1
        ends = np.where(preds <= last, self.end[np.minimum(preds, last)], 0.0)
        return np.asarray(ends + self.delays[self.graph.delay_row[tasks]])


def run(graph: Graph, durations: ArrayLike, delays: ArrayLike | None = None) -> Run:
    r"""Start and end of every task of a graph. [s]

    .. math:: s_i = \max_{j \in P(i)} (e_j + d_{ij}), \qquad e_i = s_i + t_i

    Parameters
    ----------
    graph
        Tasks, lanes and what waits for what.
    durations
        One row for each duration row of the graph, t. (rows, *batch) [s]
    delays
        One row for each delay row of the graph, d; row 0 must be 0. Left out: no delays. (rows, *batch) [s]

    Notes
    -----
    Batches of about 1,000 columns stay in cache; larger ones are better run in pieces.
    """
    times, waits, batch = _checked(graph, durations, delays)
    end = np.empty((graph.num_tasks + 1, times.shape[1]))
    start = np.empty_like(end[:-1])
    _fill(graph, times, waits, end, start)
    shape = (graph.num_tasks, *batch)
    if delays is None:
        waits = np.zeros((int(graph.delay_row.max(initial=0)) + 1, *batch))
    return Run(graph, start.reshape(shape), end[:-1].reshape(shape), waits.reshape(len(waits), *batch))


def run_whole(graph: Graph, durations: IntArray) -> Run:
    """The run of whole durations without delays. (rows,)"""
    lengths = durations[graph.duration_row]
    start = whole_starts(graph.lane, graph.preds[:, 1:], lengths)
    if start is None:
        return run(graph, durations)
    delays = np.zeros(int(graph.delay_row.max(initial=0)) + 1)
    return Run(graph, start.astype(float), (start + lengths).astype(float), delays)


def run_columns(
    graph: Graph, durations: ArrayLike, delays: ArrayLike | None = None, groups: Sequence[IntArray] | None = None
) -> tuple[FloatArray, Run]:
    """End of the last task in every column of a batch (*batch) [s], and the run of the first column alone.

    Columns that are alike are run once, in memory that was used before.

    Parameters
    ----------
    graph, durations, delays
        As in `run`; no duration is negative.
    groups
        Tasks, of the last of each of which the end is wanted; left out, of the graph. (groups, *batch) [s]
    """
    times, waits, batch = _checked(graph, durations, delays)
    kinds, column = _distinct(np.concatenate([times, waits]) if delays is not None else times)
    wanted = [graph.last_tasks] if groups is None else groups
    longest = np.empty((len(wanted), len(kinds)))
    start, end = np.empty(graph.num_tasks), np.empty(graph.num_tasks)
    piece = max(_CELLS // (graph.num_tasks + 1), 16)
    for low in range(0, len(kinds), piece):
        chosen = kinds[low : low + piece]
        ends = _scratch(graph.num_tasks + 1, len(chosen))
        _fill(graph, times[:, chosen], waits[:, chosen], ends, start if low == 0 else None)
        if low == 0:
            end[:] = ends[:-1, 0]
        for found, tasks in zip(longest[:, low : low + piece], wanted, strict=True):
            ends.take(tasks, axis=0).max(axis=0, initial=0.0, out=found)
    if delays is None:
        waits = np.zeros((int(graph.delay_row.max(initial=0)) + 1, 1))
    makespans = longest[:, column].reshape(len(wanted), *batch)
    return makespans if groups is not None else makespans[0], Run(graph, start, end, waits[:, 0])


_CELLS = 2**22
"""Ends that are worked out at a time."""
_memory = threading.local()


def _scratch(rows: int, columns: int) -> FloatArray:
    """Memory for the ends of one batch; the pages that the last one touched are used again."""
    held: FloatArray | None = getattr(_memory, "cells", None)
    if held is None or held.size < rows * columns:
        held = _memory.cells = np.empty(rows * columns)
    return held[: rows * columns].reshape(rows, columns)


def _distinct(columns: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One of each kind of column, and for each column the place of its like among them."""
    kinds: dict[bytes, int] = {}
    column = np.array(
        [kinds.setdefault(one.tobytes(), len(kinds)) for one in np.ascontiguousarray(columns.T)], np.int64
    )
    first = np.empty(len(kinds), np.int64)
    first[column[::-1]] = np.arange(len(column))[::-1]
    return first, column


def _checked(
    graph: Graph, durations: ArrayLike, delays: ArrayLike | None
) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Durations and delays over the same columns, with the batch as one axis, and the shape of the batch."""
    times = np.asarray(durations, dtype=np.float64)
    waits = np.zeros(1) if delays is None else np.asarray(delays, dtype=np.float64)
    if waits[0].any():
        raise ValueError("row 0 of the delays stands for 'no delay' and must be 0")
    if graph.num_tasks and len(times) <= graph.duration_row.max():
        raise ValueError(f"the graph needs {graph.duration_row.max() + 1} rows of durations, not {len(times)}")
    if delays is not None and len(waits) <= graph.delay_row.max(initial=0):
        raise ValueError(f"the graph needs {graph.delay_row.max() + 1} rows of delays, not {len(waits)}")
    batch = np.broadcast_shapes(times.shape[1:], waits.shape[1:])
    return _columns(times, batch), _columns(waits, batch), batch


def _fill(graph: Graph, times: FloatArray, waits: FloatArray, end: FloatArray, start: FloatArray | None = None) -> None:
    """Ends of all tasks, a column a run, and behind them a row of zeros for "none".

    `start`, where it is wanted: of all columns, or of the first one. (n, columns) or (n,)
    """
    times.take(graph.duration_row, axis=0, out=end[:-1], mode="clip")
    end[-1] = 0.0
    delayed = bool(waits.any())
    for tasks, lane_pred, preds in graph.plan:
        ready = end.take(lane_pred, 0, None, "clip")
        for pred, delay_row in preds:
            arrival = end.take(pred, 0, None, "clip")
            if delayed:
                arrival += waits.take(delay_row, 0, None, "clip")
            np.maximum(ready, arrival, out=ready)
        if start is not None:
            start[tasks] = ready if start.ndim > 1 else ready[:, 0]
        ends = end[tasks]
        ends += ready


def _columns(rows: FloatArray, batch: tuple[int, ...]) -> FloatArray:
    """Rows broadcast over the batch, with the batch as one axis."""
    wide = rows.reshape(len(rows), *(1,) * (len(batch) - rows.ndim + 1), *rows.shape[1:])
    return np.broadcast_to(wide, (len(rows), *batch)).reshape(len(rows), math.prod(batch))


def critical_path(run: Run, among: IntArray | None = None) -> list[int]:
    """Tasks, first to last, each of which starts when the one before it is done, up to the end of a scalar run.

    Durations along it, with the delays between its tasks, add up to the makespan. Where two bind, the one on the same
    lane is taken, then the lower index. `among`: tasks, the last of which is the end; left out, all.
    """
    graph, binding = run.graph, run.binding
    if not graph.num_tasks or (among is not None and not among.size):
        return []
    path = [int(np.argmax(run.end)) if among is None else int(among[np.argmax(run.end[among])])]
    while binding[path[-1]] < graph.num_tasks:
        path.append(binding[path[-1]])
    return path[::-1]


@dataclass(frozen=True)
class Gap:
    """Time in which a lane waits before a task.

    Parameters
    ----------
    start_s, end_s
        When the lane is free, and when the task begins. [s]
    task, pred
        The task, and the one it waits for.
    delay_s
        Delay between the end of `pred` and the start of `task`. [s]
    """

    start_s: float
    end_s: float
    task: int
    pred: int
    delay_s: float


def lane_gaps(run: Run, lane: int) -> list[Gap]:
    """Gaps between the tasks of a lane in a scalar run, in order of time."""
    graph = run.graph
    tasks = graph.tasks_of(lane)
    free = np.append(0.0, run.end[tasks[:-1]]) if tasks.size else np.empty(0)
    late = np.flatnonzero(run.start[tasks] > free)
    waiting = tasks[late]
    last = np.argmax(run.arrivals(waiting), axis=1) if late.size else late
    columns = (
        free[late],
        run.start[waiting],
        waiting,
        graph.preds[waiting, last],
        run.delays[graph.delay_row[waiting, last]],
    )
    return [Gap(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
