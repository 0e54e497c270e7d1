"""Tasks and edges of a measured timeline, collected before they become a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.timeline.graph import Graph, level_graph
from moesim.traces.event_table import Ints

FIXED, HOST = 0, 1
"""What the delay of an edge scales with: nothing, or the host."""
NOBODY = -1


@dataclass
class Tasks:
    """Tasks by their measured times, and edges between them.

    Attributes
    ----------
    start, end, lane
        Measured times [ns] and lane of each task.
    owner, place
        File, and piece of its work; -1 for tasks of the host.
    first
        Task in which the work of this one begins: another one where it waited for other ranks.
    edges
        Task, what it waits for, usual delay [ns], what the delay scales with, and whether the task waits for the whole
        of the other one, or only until the lane of that one is free.
    """

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    _lanes: dict[Any, int] = field(default_factory=dict)

    def task(
        self, start: int, end: int, lane: Any, owner: int = NOBODY, place: int = NOBODY, first: int = NOBODY
    ) -> int:
        """Add a task; its number."""
        self.start.append(start)
        self.end.append(end)
        self.lane.append(self._lanes.setdefault(lane, len(self._lanes)))
        self.owner.append(owner)
        self.place.append(place)
        self.first.append(len(self.first) if first < 0 else first)
        return len(self.start) - 1

    def wait(self, task: int, pred: int, usual: int, scales: int = FIXED, *, whole: bool = True) -> None:
        """Let a task wait for another one."""
        self.edges.append((task, pred, usual, scales, whole))


@dataclass(frozen=True, eq=False)
class TraceGraph:
    """A measured timeline as a graph: a row of durations for each task, a row of delays for each edge.

    Attributes
    ----------
    graph
        Tasks in level order; `order` is the place of each in the columns here.
    start_ns, lane_ns, tail_ns
        Measured start (from the first); duration on the lane; what goes on beside the next task of the lane. (n,) [ns]
    owner, place
        File, and piece of its work; -1 for tasks of the host. (n,)
    first
        Task in which the work of this one begins. (n,)
    delay_ns, delay_scales, delay_tail
        Delays of the edges; what they scale with; the task whose tail is added, or -1. (rows,)
    """

    graph: Graph
    start_ns: Ints
    lane_ns: Ints
    tail_ns: Ints
    owner: Ints
    place: Ints
    first: Ints
    delay_ns: Ints
    delay_scales: Ints
    delay_tail: Ints

    @property
    def order(self) -> Ints:
        """Task of each row of a run."""
        return self.graph.added


def graph_of(tasks: Tasks) -> TraceGraph:
    """Graph in which the edge that bound keeps its measured delay, and the others the usual one or what there was.

    Notes ----- A task may start before the one before it on its lane has ended (kernels that overlap their start with
    the end of the one before): what goes on beside the next task is its tail, and others that wait for the whole of it
    wait for that too.
    """
    start, end, lane = (np.array(one, dtype=np.int64) for one in (tasks.start, tasks.end, tasks.lane))
    origin = int(start.min()) if len(start) else 0
    start, end = start - origin, end - origin
    order = np.lexsort((np.arange(len(start)), start, lane))
    following = np.full(len(start), np.iinfo(np.int64).max)
    same = lane[order[1:]] == lane[order[:-1]]
    following[order[:-1][same]] = start[order[1:]][same]
    lane_end = np.minimum(end, following)
    columns = np.array(tasks.edges, dtype=np.int64).reshape(-1, 5)
    begun = columns[start[columns[:, 1]] <= start[columns[:, 0]]]  # what starts later was not waited for
    task, pred, usual, scales, whole = begun.T
    base = np.where(whole == 1, end[pred], lane_end[pred])
    slack = start[task] - base
    latest = np.full(len(start), np.iinfo(np.int64).max)
    np.minimum.at(latest, task, slack)
    binds = slack == latest[task]
    delay = np.where(binds, slack, np.minimum(usual, slack))
    # a task without edges starts when it did
    free = np.flatnonzero(latest == np.iinfo(np.int64).max)
    root = len(start)
    task = np.concatenate([task, free])
    pred = np.concatenate([pred, np.full(len(free), root)])
    delays = np.concatenate([[0], delay, start[free]])
    kinds = np.concatenate([[FIXED], scales, np.full(len(free), FIXED)])
    tails = np.concatenate([[NOBODY], np.where(whole == 1, begun[:, 1], NOBODY), np.full(len(free), NOBODY)])
    waits, rows = _columns(task, pred, len(start) + 1)
    by_start = np.append(order, root)  # tasks are added lane by lane in order of their start
    place = np.empty(len(start) + 2, dtype=np.int64)
    place[by_start] = np.arange(len(by_start))
    place[-1] = len(by_start)
    graph = level_graph(
        np.append(lane, lane.max(initial=0) + 1)[by_start],
        by_start,
        place[waits[by_start]],
        rows[by_start],
        range(len(by_start)),
    )
    return TraceGraph(
        graph=graph,
        start_ns=np.append(start, 0),
        lane_ns=np.append(lane_end - start, 0),
        tail_ns=np.append(end - lane_end, 0),
        owner=np.array([*tasks.owner, NOBODY], dtype=np.int64),
        place=np.array([*tasks.place, NOBODY], dtype=np.int64),
        first=np.array([*tasks.first, root], dtype=np.int64),
        delay_ns=delays,
        delay_scales=kinds,
        delay_tail=tails,
    )


def _columns(task: Ints, pred: Ints, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges as a table: a row a task, its predecessors (`count` for none) and the rows of their delays."""
    by_task = np.argsort(task, kind="stable")
    sorted_task = task[by_task]
    first = np.searchsorted(sorted_task, np.arange(count))
    column = np.arange(len(task)) - first[sorted_task]
    width = int(column.max(initial=-1)) + 1
    waits, rows = np.full((count, width), count), np.zeros((count, width), dtype=np.int64)
    waits[sorted_task, column] = pred[by_task]
    rows[sorted_task, column] = by_task + 1
    return waits, rows
