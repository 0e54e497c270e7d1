"""The one longest-path routine: a task starts when its lane is free and what it waits for is done.

Scalar durations give the timeline that is drawn, array durations the step times of a batch; every column of a batch
has the bits of the scalar run, since both are the same additions and maxima.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from moesim.timeline.graph import Graph

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

    def arrivals(self, task: int) -> FloatArray:
        """When the things that a task waits for are there, column by column of `Graph.preds`; 0 for none. (k) [s]."""
        preds = self.graph.preds[task]
        ends = np.where(preds < self.graph.num_tasks, self.end[np.minimum(preds, task)], 0.0)
        return np.asarray(ends + self.delays[self.graph.delay_row[task]])


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
    times = np.asarray(durations, dtype=np.float64)
    waits = np.zeros(1) if delays is None else np.asarray(delays, dtype=np.float64)
    if waits[0].any():
        raise ValueError("row 0 of the delays stands for 'no delay' and must be 0")
    if graph.num_tasks and len(times) <= graph.duration_row.max():
        raise ValueError(f"the graph needs {graph.duration_row.max() + 1} rows of durations, not {len(times)}")
    if delays is not None and len(waits) <= graph.delay_row.max(initial=0):
        raise ValueError(f"the graph needs {graph.delay_row.max() + 1} rows of delays, not {len(waits)}")
    batch = np.broadcast_shapes(times.shape[1:], waits.shape[1:])
    times, waits = _columns(times, batch), _columns(waits, batch)
    end = np.zeros((graph.num_tasks + 1, times.shape[1]))
    start = np.empty_like(end[:-1])
    for tasks, lane_pred, preds, duration_row in graph.plan:
        ready = end.take(lane_pred, axis=0, out=start[tasks], mode="clip")
        for pred, delay_row in preds:
            arrival = end.take(pred, axis=0)
            if delays is not None:
                arrival += waits.take(delay_row, axis=0)
            np.maximum(ready, arrival, out=ready)
        np.add(ready, times.take(duration_row, axis=0), out=end[tasks])
    shape = (graph.num_tasks, *batch)
    if delays is None:
        waits = np.zeros((int(graph.delay_row.max(initial=0)) + 1, *batch))
    return Run(graph, start.reshape(shape), end[:-1].reshape(shape), waits.reshape(len(waits), *batch))


def _columns(rows: FloatArray, batch: tuple[int, ...]) -> FloatArray:
    """Rows broadcast over the batch, with the batch as one axis."""
    wide = rows.reshape(len(rows), *(1,) * (len(batch) - rows.ndim + 1), *rows.shape[1:])
    return np.broadcast_to(wide, (len(rows), *batch)).reshape(len(rows), math.prod(batch))


def critical_path(run: Run) -> list[int]:
    """Tasks, first to last, each of which starts when the one before it is done, up to the end of a scalar run.

    Durations along it, with the delays between its tasks, add up to the makespan. Where two bind, the one on the same
    lane is taken, then the lower index.
    """
    graph = run.graph
    if not graph.num_tasks:
        return []
    path = [int(np.argmax(run.end))]
    while True:
        task = path[-1]
        binding = np.flatnonzero((run.arrivals(task) == run.start[task]) & (graph.preds[task] < graph.num_tasks))
        if not binding.size:
            return path[::-1]
        preds = graph.preds[task, binding]
        path.append(int(preds[0] if binding[0] == 0 else preds.min()))


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
    gaps = []
    for place in np.flatnonzero(run.start[tasks] > free):
        task = int(tasks[place])
        column = int(np.argmax(run.arrivals(task)))
        gaps.append(
            Gap(
                start_s=float(free[place]),
                end_s=float(run.start[task]),
                task=task,
                pred=int(graph.preds[task, column]),
                delay_s=float(run.delays[graph.delay_row[task, column]]),
            )
        )
    return gaps
