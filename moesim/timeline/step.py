"""The graph of a training step: the slots of a schedule, and what data parallelism adds around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from moesim.timeline.graph import Graph, IntArray, level_graph
from moesim.timeline.schedule import Program, Schedule, program_array
from moesim.timeline.tasks import BW, GATHER, KINDS, LANES, NIC, OPTIMIZER, OV, REDUCE, SM, B, F, TaskKeys, TaskTable, W

Communication = Literal["none", "after", "overlap"]
Reduction = Literal["none", "after", "overlap", "stale"]


@dataclass(frozen=True, eq=False)
class StepGraph:
    """A step as a graph, and what its tasks and rows mean.

    Parameters
    ----------
    graph
        Tasks on two lanes a rank: lane ``2 rank`` computes (sm), ``2 rank + 1`` communicates for data parallelism (nic).
    tasks
        What each task of the graph is, in its order.
    stage_rank
        Rank of each stage.
    micro_batches
        Micro-batches of the step.
    rows
        Row of the durations for each (kind, where): where is a stage for F, BW, B, W, reduce and gather, a rank for the
        optimizer, and (forward stage, backward stage) for OV. Only what occurs has a row.

    Notes
    -----
    Row 0 of the delays is no delay, row 1 + q is the boundary between the stages q and q + 1, in both directions; a
    boundary inside a rank costs nothing.
    """

    graph: Graph
    tasks: TaskTable
    stage_rank: tuple[int, ...]
    micro_batches: int
    rows: Mapping[tuple[str, int | tuple[int, int]], int]

    @property
    def num_stages(self) -> int:
        """Number of stages, S."""
        return len(self.stage_rank)

    @property
    def num_ranks(self) -> int:
        """Number of pipeline ranks, p."""
        return max(self.stage_rank) + 1

    @property
    def num_rows(self) -> int:
        """Rows that durations must have."""
        return len(self.rows)

    @property
    def num_delay_rows(self) -> int:
        """Rows that delays must have."""
        return self.num_stages

    def row(self, kind: str, where: int | tuple[int, int]) -> int:
        """Row of the durations of a kind of task; a ValueError if the step has no such task."""
        if (kind, where) not in self.rows:
            kinds = ", ".join(sorted({kind for kind, _ in self.rows}))
            raise ValueError(f"the step has no task {kind} of {where}; its kinds of task are {kinds}")
        return self.rows[kind, where]

    def tasks_of(self, rank: int, lane: int = SM) -> IntArray:
        """Tasks of a rank on one of its lanes, in the order in which it runs them."""
        return self.graph.tasks_of(len(LANES) * rank + lane)


@lru_cache(maxsize=32)
def step_graph(
    schedule: Schedule,
    pp: int,
    micro_batches: int,
    vpp: int = 1,
    *,
    merge_pairs: bool = False,
    extra_warmup: int = 0,
    grad_reduce: Reduction = "none",
    param_gather: Communication = "none",
    optimizer: bool = True,
) -> StepGraph:
    """Graph of one training step.

    Parameters
    ----------
    schedule
        Order of the slots of each rank.
    pp, micro_batches, vpp
        Pipeline ranks, micro-batches of a step, chunks a rank.
    merge_pairs
        Run each steady-state pair of a forward and a backward as one task OV, which waits for what both wait for. This
        is how expert communication of one micro-batch hides behind computation of another. A pair of one and the same
        micro-batch stays two tasks, since its backward needs its forward; `extra_warmup` avoids such pairs.
    extra_warmup
        Forwards issued earlier than the schedule needs.
    grad_reduce
        Gradient reduction of each stage on the nic lane: ``overlap`` begins after the last backward of the stage,
        ``after`` when the rank has done its last backward; ``stale`` at the start of the step, of the gradients of the
        step before, which the optimizer of this one waits for.
    param_gather
        Gathering of the weights of each stage on the nic lane: ``overlap`` at the start of the step, where the first
        forward of a stage waits for it, which in the steady state of training is the gathering that the optimizer step
        before has left; ``after`` at the end, after the optimizer.
    optimizer
        Whether each rank ends with an optimizer step, after all its backwards and reductions.

    References
    ----------
    narayanan2021, section 2.2; Megatron-Core ``overlap_moe_expert_parallel_comm`` (pairs, one extra warm-up forward
    with interleaving), ``overlap_grad_reduce``, ``overlap_param_gather``
    """
    for option, known in ((grad_reduce, get_args(Reduction)), (param_gather, get_args(Communication))):
        if option not in known:
            raise ValueError(f"'{option}' is none of {', '.join(known)}")
    if violations := schedule.constraints(pp, micro_batches, vpp):
        raise ValueError("; ".join(map(str, violations)))
    stage_rank = schedule.stage_rank(pp, vpp)
    slots = _slots(schedule.order(pp, micro_batches, vpp, extra_warmup), merge_pairs)
    gathers: list[tuple[int, ...]] = [(GATHER, rank, stage, -1, -1, -1) for stage, rank in enumerate(stage_rank)]
    ahead = gathers if param_gather == "overlap" else []
    stale: list[tuple[int, ...]] = [(REDUCE, *row[1:]) for row in gathers] if grad_reduce == "stale" else []
    head = ahead + stale
    first, end = len(head), len(head) + len(slots)
    pipelines = schedule.pipelines
    forward, backward = (first + places for places in _places(slots, stage_rank, micro_batches, pipelines))
    last_backward = backward.max(axis=1)
    np.maximum.at(last_backward, slots[slots[:, 0] == W, 2], first + np.flatnonzero(slots[:, 0] == W))

    tail, waits = _epilogue(gathers, last_backward, (len(ahead), end), grad_reduce, param_gather, optimizer)
    columns = np.concatenate([np.array(part, np.int64).reshape(-1, 6) for part in (head, slots, tail)])
    preds, delay_row = np.full((len(columns), 3), -1), np.zeros((len(columns), 3), np.int64)
    joined = np.flatnonzero(np.arange(1, len(stage_rank)) % (len(stage_rank) // pipelines))
    boundary = _boundary_rows(stage_rank)[joined, None]
    preds[forward[joined + 1], 0], delay_row[forward[joined + 1], 0] = forward[joined], boundary
    preds[backward[joined], 1], delay_row[backward[joined], 1] = backward[joined + 1], boundary
    if ahead:
        preds[forward.min(axis=1), 2] = np.arange(len(ahead))
    preds[end:, 0] = waits
    preds[preds < 0] = len(columns)

    tasks = TaskTable(*columns.T)
    rows, duration_row = _duration_rows(tasks)
    lane = len(LANES) * tasks.rank + np.where(np.isin(tasks.kind, [REDUCE, GATHER]), NIC, SM)
    graph = level_graph(lane, duration_row, preds, delay_row, TaskKeys(columns))
    return StepGraph(graph, TaskTable(*columns[graph.added].T), stage_rank, micro_batches, rows)


def _epilogue(
    gathers: list[tuple[int, ...]],
    last_backward: IntArray,
    places: tuple[int, int],
    grad_reduce: Reduction,
    param_gather: Communication,
    optimizer: bool,
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Rows of the tasks behind the slots, and the task that each waits for; -1 for none.

    `places`: of the first stale reduction, and of the first task behind the slots.
    """
    stale, end = places
    tail: list[tuple[int, ...]] = []
    waits: list[int] = []
    ranks = np.array([rank for _, rank, *_ in gathers])
    for rank in range(ranks.max() + 1):
        own = np.flatnonzero(ranks == rank)
        done = last_backward[own].max()
        if grad_reduce in ("overlap", "after"):
            own_by_end = own[np.argsort(last_backward[own])]
            tail.extend((REDUCE, rank, stage, -1, -1, -1) for stage in own_by_end)
            waits.extend(last_backward[own_by_end] if grad_reduce == "overlap" else [done] * len(own))
        if optimizer:
            # The nic lane runs the reductions in order, so the last one stands for all.
            last = stale + int(own.max()) if grad_reduce == "stale" else end + len(tail) - 1
            waits.append(-1 if grad_reduce == "none" else last)
            tail.append((OPTIMIZER, rank, -1, -1, -1, -1))
            done = end + len(tail) - 1
        if param_gather == "after":
            tail.extend(gathers[stage] for stage in own)
            waits.extend([done] * len(own))
    return tail, waits


def _slots(programs: Sequence[Program], merge_pairs: bool) -> IntArray:
    """Columns of a `TaskTable` for the slots of all ranks, rank by rank. (n, 6)."""
    arrays = [program_array(program) for program in programs]
    joined = np.concatenate(arrays)
    slots = np.full((len(joined), 6), -1)
    slots[:, 0] = joined[:, 0]
    slots[:, 1] = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    slots[:, 2:4] = joined[:, 1:3]
    if not merge_pairs:
        return slots
    here, following = slots[:-1], slots[1:]
    kinds = (here[:, 0] == F) & (following[:, 0] == BW) & (here[:, 1] == following[:, 1])
    merged = np.flatnonzero((joined[:-1, 3] == 1) & kinds & (here[:, 3] != following[:, 3]))
    slots[merged, 0] = OV
    slots[merged, 4:6] = slots[merged + 1, 2:4]
    return np.delete(slots, merged + 1, axis=0)


def _places(
    slots: IntArray, stage_rank: tuple[int, ...], micro_batches: int, pipelines: int
) -> tuple[IntArray, IntArray]:
    """Place of each forward and of each backward among the slots; a schedule that misses one is a ValueError.

    Of shape (S, m / pipelines): a stage sees the micro-batches of its own pipeline.
    """
    kind = slots[:, 0]
    stages, share = len(stage_rank), micro_batches // pipelines
    ranks = np.array(stage_rank)[:, None]
    first = share * (np.arange(stages) // (stages // pipelines))
    found = {}
    for name, halves in {
        "forward": (((kind == F) | (kind == OV), 2),),
        "backward": (((kind == BW) | (kind == B), 2), (kind == OV, 4)),
    }.items():
        at = np.full((stages, share), -1)
        count = 0
        for mask, column in halves:
            place = np.flatnonzero(mask)
            stage, micro_batch = slots[place, column], slots[place, column + 1]
            at[stage, micro_batch - first[stage]] = place
            count += len(place)
        if count != at.size or (at < 0).any() or (slots[at, 1] != ranks).any():
            raise ValueError(
                f"the schedule must run the {name} of each stage and micro-batch once, on the stage's rank"
            )
        found[name] = at
    _in_order("backward", found["backward"], "forward", found["forward"], first)
    split, weights = np.isin(found["backward"], np.flatnonzero(kind == B)), np.flatnonzero(kind == W)
    weight = np.where(split, -1, len(slots))  # a whole backward has none
    weight[slots[weights, 2], slots[weights, 3] - first[slots[weights, 2]]] = weights
    if len(weights) != split.sum() or (weight < 0).any():
        raise ValueError("the schedule must run one weight gradient for each split backward, and for no other")
    _in_order("weight gradient", weight, "backward", found["backward"], first)
    return found["forward"], found["backward"]


def _in_order(later: str, after: IntArray, earlier: str, before: IntArray, first: IntArray) -> None:
    wrong = np.argwhere(after <= before)
    if wrong.size:
        stage, micro_batch = wrong[0]
        where = f"stage {stage}, micro-batch {micro_batch + first[stage]}"
        raise ValueError(f"deadlock: the {later} of {where} comes before its {earlier}")


def _boundary_rows(stage_rank: tuple[int, ...]) -> IntArray:
    """Delay row of each boundary between neighbouring stages; 0 where both are on one rank. (S - 1)."""
    ranks = np.array(stage_rank)
    return np.where(ranks[1:] == ranks[:-1], 0, np.arange(1, len(ranks)))


def _duration_rows(tasks: TaskTable) -> tuple[dict[tuple[str, int | tuple[int, int]], int], IntArray]:
    """Rows for what occurs, and the row of each task."""
    where = np.where(tasks.kind == OPTIMIZER, tasks.rank, tasks.stage)
    size = int(max(where.max(), tasks.back_stage.max())) + 2
    code = (tasks.kind * size + where) * size + tasks.back_stage + 1
    used = np.zeros(len(KINDS) * size * size, dtype=bool)
    used[code] = True
    rows: dict[tuple[str, int | tuple[int, int]], int] = {}
    for row, number in enumerate(np.flatnonzero(used).tolist()):
        kind, here, back = number // size // size, number // size % size, number % size - 1
        rows[KINDS[kind], (here, back) if kind == OV else here] = row
    return rows, (np.cumsum(used) - 1)[code]
