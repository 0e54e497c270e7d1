"""Readings of a step that was run: where the time of a rank went, how much it idled, what it kept, what to draw."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from moesim.base.events import Event, Flow
from moesim.base.numeric import Numeric
from moesim.timeline.graph import IntArray
from moesim.timeline.run import Gap, Run, lane_gaps
from moesim.timeline.step import StepGraph
from moesim.timeline.tasks import BW, GATHER, KINDS, LANES, NIC, OPTIMIZER, OV, REDUCE, SM, F, W

CATEGORIES = {
    "F": "forward",
    "BW": "backward",
    "B": "backward",
    "W": "backward",
    "OV": "overlapped",
    "reduce": "gradient reduction",
    "gather": "weight gathering",
    "optimizer": "optimizer",
}


class Segment(NamedTuple):
    """A piece of the time line of a rank.

    Parameters
    ----------
    kind
        ``busy``: a task on the sm lane; ``transfer``: waiting for what a neighbour has already sent; ``nic``: waiting
        for the rank's own gradient reduction or weight gathering; ``idle``: waiting for a neighbour to finish.
    row
        Row of the durations of the task that is busy, or that is waited for on the nic lane.
    seconds
        Length. [s]
    """

    kind: Literal["busy", "transfer", "nic", "idle"]
    row: int | None
    seconds: float


def last_rank(step: StepGraph, run: Run) -> int:
    """Rank that finishes last in a scalar run; of several, the one that holds the lowest stage."""
    finishing = set(step.tasks.rank[run.end == run.makespan].tolist())
    return next(rank for rank in step.stage_rank if rank in finishing)


def walk_rank(step: StepGraph, run: Run, rank: int) -> list[Segment]:
    """Time line of one rank, from 0 to the makespan of a scalar run.

    The segments follow the sm lane and add up to the makespan. What the rank waits for on its own nic lane counts as
    far as that lane was busy in the gap; of a wait for a neighbour, the last part, up to the delay of that boundary, is
    the transfer.
    """
    graph = step.graph
    tasks = step.tasks_of(rank)
    gaps = {gap.task: gap for gap in lane_gaps(run, len(LANES) * rank + SM)}
    segments: list[Segment] = []
    rows, seconds = graph.duration_row[tasks].tolist(), (run.end[tasks] - run.start[tasks]).tolist()
    for task, row, length in zip(tasks.tolist(), rows, seconds, strict=True):
        if task in gaps:
            segments.extend(_gap_segments(step, run, rank, gaps[task]))
        segments.append(Segment("busy", row, length))
    free = float(run.end[tasks[-1]]) if tasks.size else 0.0
    return segments + _nic_segments(step, run, rank, free, float(run.makespan))


def _gap_segments(step: StepGraph, run: Run, rank: int, gap: Gap) -> list[Segment]:
    if step.tasks.rank[gap.pred] == rank:
        return _nic_segments(step, run, rank, gap.start_s, gap.end_s)
    length = gap.end_s - gap.start_s
    transfer = min(length, gap.delay_s)
    parts = [Segment("idle", None, length - transfer), Segment("transfer", None, transfer)]
    return [part for part in parts if part.seconds > 0]


def _nic_segments(step: StepGraph, run: Run, rank: int, start: float, end: float) -> list[Segment]:
    """Split a span of time by what the nic lane of the rank does in it; the rest is idle."""
    segments = []
    for task in step.tasks_of(rank, NIC).tolist():
        low, high = max(start, float(run.start[task])), min(end, float(run.end[task]))
        if high <= low:
            continue
        if low > start:
            segments.append(Segment("idle", None, low - start))
        segments.append(Segment("nic", int(step.graph.duration_row[task]), high - low))
        start = high
    if end > start:
        segments.append(Segment("idle", None, end - start))
    return segments


def busy_seconds(step: StepGraph, run: Run) -> tuple[float, ...]:
    """How long each pipeline rank computes in a scalar run. [s]"""
    lengths = run.end - run.start
    return tuple(float(lengths[step.tasks_of(rank)].sum()) for rank in range(step.num_ranks))


def idle_fraction(step: StepGraph, run: Run) -> Numeric:
    r"""Share of the step in which the sm lanes do nothing, the bubble. [-]

    .. math:: \frac{\sum_r (T - b_r)}{p T}

    with the makespan T and the busy time b of each rank.
    """
    computes = step.graph.lane % len(LANES) == SM
    busy = (run.end[computes] - run.start[computes]).sum(axis=0)
    whole = step.num_ranks * run.makespan
    idle = np.maximum(np.divide(whole - busy, whole, out=np.zeros_like(whole), where=whole > 0), 0.0)
    return idle if idle.ndim else float(idle)


def held_chunks(step: StepGraph, run: Run) -> tuple[int, ...]:
    """Most chunks each rank keeps at once in a scalar run: forwards begun less backwards ended (W where split)."""
    tasks, peaks = step.tasks, []
    begins, ends = np.isin(tasks.kind, [F, OV]), np.isin(tasks.kind, [BW, W, OV])
    for rank in range(step.num_ranks):
        begun = np.sort(run.start[begins & (tasks.rank == rank)])
        ended = np.sort(run.end[ends & (tasks.rank == rank)])
        held = np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun, side="right")
        peaks.append(int(held.max()))
    return tuple(peaks)


def events(step: StepGraph, run: Run) -> tuple[list[Event], list[Flow]]:
    """Events of a scalar run, one a task in the order of the graph, and an arrow for each wait for another rank."""
    table = zip(*(column.tolist() for column in step.tasks), run.start.tolist(), run.end.tolist(), strict=True)
    drawn = [
        Event(
            rank=rank,
            lane=LANES[NIC if kind in (REDUCE, GATHER) else SM],
            name=_name(kind, stage, micro_batch, back_stage, back_micro_batch),
            category=CATEGORIES[KINDS[kind]],
            start_s=start,
            duration_s=end - start,
            args=_args(stage, micro_batch, back_stage, back_micro_batch),
        )
        for kind, rank, stage, micro_batch, back_stage, back_micro_batch, start, end in table
    ]
    return drawn, [Flow(source, target) for source, target in _crossings(step)]


def _crossings(step: StepGraph) -> IntArray:
    """Pairs of tasks, the second of which waits for the first on another rank. (k, 2)."""
    preds = step.graph.preds
    target, column = np.nonzero(preds < step.graph.num_tasks)
    source = preds[target, column]
    pairs = np.column_stack([source, target])
    return np.asarray(pairs[step.tasks.rank[source] != step.tasks.rank[target]])


def _name(kind: int, stage: int, micro_batch: int, back_stage: int, back_micro_batch: int) -> str:
    if kind == OPTIMIZER:
        return KINDS[kind]
    if kind in (REDUCE, GATHER):
        return f"{KINDS[kind]} {stage}"
    if kind == OV:
        return f"F {stage}.{micro_batch} + BW {back_stage}.{back_micro_batch}"
    return f"{KINDS[kind]} {stage}.{micro_batch}"


def _args(*numbers: int) -> dict[str, object]:
    names = ("stage", "micro_batch", "back_stage", "back_micro_batch")
    return {name: number for name, number in zip(names, numbers, strict=True) if number >= 0}
