"""Tasks of the operations of a chunk on the lanes of one rank, and several chunks as one graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from moesim.timeline.graph import Graph, IntArray, level_graph

LANES = ("host", "sm", "tp", "ep", "cp", "dp")
HOST, SM, TP, EP, CP, DP = range(len(LANES))


class Task(NamedTuple):
    """What the graph needs to know of an operation: lane, positions of the operations it needs, and how it waits."""

    lane: int
    needs: tuple[int, ...]
    host_sync: bool
    beside: bool
    prefetch: bool
    detached: bool


Structure = tuple[Task, ...]
"""Operations of a piece of a chunk, in lane order."""


@dataclass(frozen=True, eq=False)
class ChunkTasks:
    """Tasks of a chunk in the order in which lanes get them.

    ``preds`` beside the one before on the lane, the number of tasks for none; ``level``: one more than the highest one
    waited for; ``num_rows`` of the durations.
    """

    lane: IntArray
    row: IntArray
    preds: IntArray
    level: IntArray
    num_rows: int


@dataclass(frozen=True, eq=False)
class JoinedChunks:
    """Chunks that have nothing to do with each other as one graph.

    ``first_rows``: first row of the durations of each; ``finals``: its last task on each of its lanes.
    """

    graph: Graph
    first_rows: tuple[int, ...]
    finals: tuple[IntArray, ...]


class _Tasks:
    """Tasks that are added one by one."""

    def __init__(self) -> None:
        self.lane: list[int] = []
        self.row: list[int] = []
        self.preds: list[tuple[int, ...]] = []
        self.level: list[int] = []
        self._reached = [-1] * len(LANES)

    def add(self, lane: int, row: int, preds: tuple[int, ...]) -> int:
        """Add a task behind those of its lane and return its number."""
        level = self._reached[lane]
        for pred in preds:
            if self.level[pred] > level:
                level = self.level[pred]
        self._reached[lane] = level + 1
        self.lane.append(lane)
        self.row.append(row)
        self.preds.append(preds)
        self.level.append(level + 1)
        return len(self.lane) - 1


@lru_cache(maxsize=256)
def chunk_tasks(structures: tuple[Structure, ...], sequence: tuple[tuple[int, int], ...]) -> ChunkTasks:
    """Tasks of a sequence of pieces.

    Parameters
    ----------
    structures
        Distinct pieces.
    sequence
        For each piece in lane order the chain it belongs to, and which structure it has.

    Notes
    -----
    Rows of the durations: the operations of all structures, their launches, a host sync, and the host around a chain.
    """
    bases = np.cumsum([0, *(len(structure) for structure in structures)]).tolist()
    total = bases[-1]
    tasks = _Tasks()
    tails: dict[int, tuple[int, ...]] = {}
    ends: dict[int, list[tuple[int, ...]]] = {}
    late: list[tuple[int, int, tuple[int, ...]]] = []  # detached: their lane lets the next gathers go first
    waiting_since = 0

    def flush() -> None:
        for task in late:
            tasks.add(*task)
        late.clear()

    for occurrence, (chain, which) in enumerate(sequence):
        finished = ends.setdefault(chain, [])
        previous: tuple[int, ...] = ()
        place: list[int] = []
        for row, task in enumerate(structures[which], bases[which]):
            if late and waiting_since < occurrence and not task.prefetch:
                flush()
            launch = tasks.add(HOST, total + row, ())
            before = tails.get(chain, ())
            if task.needs:
                before = tuple(place[index] for index in task.needs)
            elif task.beside:
                before = previous
            elif task.prefetch:
                before = finished[-2] if len(finished) > 1 else ()
            if task.detached:
                waiting_since = waiting_since if late else occurrence
                late.append((task.lane, row, (*before, launch)))
                place.append(-1)  # nothing in a chunk waits for it
                continue
            number = tasks.add(task.lane, row, (*before, launch))
            place.append(number)
            if task.host_sync:
                tasks.add(HOST, 2 * total, (*before, launch))
            previous = before
            tails[chain] = (*tails.get(chain, ()), number) if task.prefetch else (number,)
        finished.append(tails.get(chain, ()))
    flush()
    for _ in ends:
        tasks.add(HOST, 2 * total + 1, ())
    count = len(tasks.lane)
    preds = np.full((count, max(map(len, tasks.preds), default=0)), count)
    for task_number, before in enumerate(tasks.preds):
        preds[task_number, : len(before)] = before
    columns = (np.array(part, np.int64) for part in (tasks.lane, tasks.row, tasks.level))
    lane, rows, level = columns
    return ChunkTasks(lane, rows, preds, level, 2 * total + 2)


@lru_cache(maxsize=32)
def joined_chunks(chunks: tuple[ChunkTasks, ...]) -> JoinedChunks:
    """Chunks side by side, each on lanes of its own."""
    counts = [len(chunk.lane) for chunk in chunks]
    total, width = sum(counts), max(chunk.preds.shape[1] for chunk in chunks)
    preds = np.full((total, width), total)
    for chunk, low in zip(chunks, _starts(counts), strict=True):
        size = len(chunk.lane)
        preds[low : low + size, : chunk.preds.shape[1]] = np.where(chunk.preds < size, chunk.preds + low, total)
    rows = _starts([chunk.num_rows for chunk in chunks])
    lane = np.concatenate([chunk.lane + len(LANES) * which for which, chunk in enumerate(chunks)])
    graph = level_graph(
        lane,
        np.concatenate([chunk.row + low for chunk, low in zip(chunks, rows, strict=True)]),
        preds,
        np.zeros_like(preds),
        range(total),
        np.concatenate([chunk.level for chunk in chunks]),
    )
    finals = tuple(
        graph.last_tasks[graph.lane[graph.last_tasks] // len(LANES) == which] for which in range(len(chunks))
    )
    return JoinedChunks(graph, tuple(rows), finals)


def _starts(counts: Sequence[int]) -> list[int]:
    found: list[int] = np.cumsum([0, *counts[:-1]]).tolist()
    return found
