"""Durations of every task of a training step: chunks, data-parallel communication, optimizer, stage boundaries."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.blocks import Blocks, PricedBlock, chunk_blocks, price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.contention import Contention
from moesim.cost.machine import Group
from moesim.cost.memory_bound import traffic_time
from moesim.cost.plan import Plan, composition
from moesim.cost.stage import (
    BACKWARD,
    FORWARD,
    ChunkTime,
    Keep,
    Ops,
    Piece,
    chunk_time,
    interleaved,
    sequential,
    two_batches,
)
from moesim.timeline.step import Communication, StepGraph, step_graph
from moesim.workload.ops import Message, Traffic
from moesim.workload.sharding import RankParams, update_bytes
from moesim.workload.stages import Stage

CLASSES = ("ep", "tp", "cp", "pp", "dp", "host")
"""Classes whose exposure is measured: the makespan without their durations, one more column of the batch each."""


Parts = Callable[[], dict[str, float]]
"""Seconds by category, worked out when they are asked for."""


@dataclass(frozen=True)
class StepTimes:
    """A step graph with its durations and delays. [s]"""

    graph: StepGraph
    durations: NDArray[np.float64]
    delays: NDArray[np.float64]
    _parts: dict[int, Parts]

    def categories(self, row: int) -> dict[str, float]:
        """Seconds of a row of the durations by category, in the first column; they add up to it. [s]"""
        return {name: value for name, value in self._parts[row]().items() if value}


def plan_graph(plan: Plan) -> StepGraph:
    """The step graph of a plan: schedule, merged pairs, and where data-parallel communication goes."""
    strategy = plan.strategy
    sharding = plan.sharding
    once = not sharding.per_micro_batch or sharding.inside_node  # hybrid sharding still sums over its replicas
    reduce: Communication = ("overlap" if strategy.overlap_grad_reduce else "after") if once else "none"
    gathers = sharding.optimizer and not sharding.weights
    gather: Communication = ("overlap" if strategy.overlap_param_gather else "after") if gathers else "none"
    return step_graph(
        plan.schedule,
        strategy.pp,
        plan.num_micro_batches,
        strategy.vpp,
        merge_pairs=strategy.overlap_ep,
        extra_warmup=plan.extra_warmup,
        grad_reduce=reduce,
        param_gather=gather,
    )


def step_times(plan: Plan, blocks: Blocks, keep: Keep | None = None) -> StepTimes:
    """Price every task of the step.

    Parameters
    ----------
    plan, blocks
        The plan and its priced blocks.
    keep
        Columns in which a class is hidden (see :data:`CLASSES`); left out, nothing is.
    """
    graph = plan_graph(plan)
    keep = keep or {}
    durations = np.zeros((graph.num_rows, *plan.shape))
    delays = np.zeros((graph.num_delay_rows, *plan.shape))
    parts_of: dict[int, Parts] = {}
    chunks = _Chunks(plan, blocks, keep)
    sends = [boundary_time(plan, stage) * keep.get("pp", 1.0) for stage in range(graph.num_stages - 1)]

    def put(row: int, seconds: Numeric, parts: Parts) -> None:
        durations[row] = seconds
        parts_of[row] = parts

    def exchange(row: int, seconds: Numeric, category: str) -> None:
        seconds = seconds * keep.get(category, 1.0)
        put(row, seconds, lambda: {category: _first(seconds)})

    for (kind, where), row in graph.rows.items():
        match kind, where:
            case "F" | "BW" | "B" | "W", int():
                chunk = chunks.single(kind, where)
                put(row, *_with_sends(plan, chunk, [_outgoing(kind, where, sends)]))
            case "OV", (int(forward), int(backward)):
                chunk = chunks.merged(forward, backward)
                outgoing = [_outgoing("F", forward, sends), _outgoing("BW", backward, sends)]
                put(row, *_with_sends(plan, chunk, outgoing))
            case "reduce", int():
                seconds = gradient_reduction_time(plan, plan.params[where])
                if plan.strategy.overlap_grad_reduce:
                    last = "W" if ("W", where) in graph.rows else "BW"
                    seconds = _behind(seconds, chunks.single(last, where).seconds, plan.stages[where])
                exchange(row, seconds, "dp")
            case "gather", int():
                seconds = parameter_gather_time(plan, plan.params[where])
                if plan.strategy.overlap_param_gather:
                    seconds = _behind(seconds, chunks.single("F", where).seconds, plan.stages[where])
                exchange(row, seconds, "dp")
            case "optimizer", int():
                exchange(row, optimizer_time(plan, where), "optimizer")
            case _:
                raise ValueError(f"no price for a task {kind} of {where}")
    if plan.strategy.overlap_p2p:
        for stage, send in enumerate(sends):
            delays[1 + stage] = send
    return StepTimes(graph, durations, delays, parts_of)


class _Chunks:
    """Chunk times, priced once per distinct composition."""

    def __init__(self, plan: Plan, blocks: Blocks, keep: Keep) -> None:
        self._plan, self._blocks, self._keep = plan, blocks, keep
        self._keys = [composition(plan, stage) for stage in plan.stages]
        self._known: dict[object, ChunkTime] = {}
        self._halves = price_blocks(plan.half) if plan.strategy.two_batch_overlap else None

    def single(self, kind: str, stage: int) -> ChunkTime:
        key = (kind, self._keys[stage])
        if self._halves is None:
            return self._time(key, lambda: sequential(self._ops(kind, stage)), self._plan.contention(kind))
        return self._time(key, lambda: self._both_halves(kind, stage), self._plan.contention(kind))

    def _both_halves(self, kind: str, stage: int) -> tuple[Piece, ...]:
        """A chunk of two half micro-batches; a weight gradient that was put off has no exchange to run beside."""
        layers = self._ops(kind, stage)
        if kind == "W":
            return sequential([*layers, *layers])
        return two_batches(layers, FORWARD if kind == "F" else BACKWARD)

    def merged(self, forward: int, backward: int) -> ChunkTime:
        contention = self._plan.contention("OV")
        key = ("OV", self._keys[forward], self._keys[backward])
        return self._time(key, lambda: interleaved(self._ops("F", forward), self._ops("BW", backward)), contention)

    def _ops(self, kind: str, stage: int) -> list[Ops]:
        blocks = self._blocks if self._halves is None else self._halves
        chunk: list[PricedBlock] = chunk_blocks(self._plan, self._plan.stages[stage], blocks)
        if kind == "F":
            return [block.forward for block in chunk]
        if kind == "BW":
            return [block.backward for block in reversed(chunk)]
        return [block.split[kind == "W"] for block in reversed(chunk)]

    def _time(self, key: object, pieces: Callable[[], tuple[Piece, ...]], share: Numeric | Contention) -> ChunkTime:
        if key not in self._known:
            plan = self._plan
            self._known[key] = chunk_time(pieces(), plan.shape, plan.machine.host.sync, share, self._keep)
        return self._known[key]


def _behind(seconds: Numeric, chunk: Numeric, stage: Stage) -> Numeric:
    r"""What is left of a reduction or gathering that runs layer by layer beside the chunk next to it. [s]

    .. math:: \max(T / n, \; T - T_{chunk} (1 - 1 / n))

    With n layers, the reduction of one waits for its own backward only, so all but the last one's can hide behind the
    chunk; the gatherings of a forward mirror that. Layers are taken as equal.
    """
    layers = max(stage.num_layers + stage.embedding + stage.loss, 1)
    return np.maximum(seconds / layers, seconds - chunk * (1 - 1 / layers))


def _outgoing(kind: str, stage: int, sends: list[Numeric]) -> Numeric | None:
    """The send that follows a chunk: activations to the next stage, gradients to the one before, none behind a W."""
    if kind == "W":
        return None
    boundary = stage if kind == "F" else stage - 1
    return sends[boundary] if 0 <= boundary < len(sends) else None


def _with_sends(plan: Plan, chunk: ChunkTime, outgoing: list[Numeric | None]) -> tuple[Numeric, Parts]:
    """Blocking sends hold up the rank after the chunk; overlapped ones are delays of the step graph instead."""
    sends = [] if plan.strategy.overlap_p2p else [send for send in outgoing if send is not None]
    seconds: Numeric = chunk.seconds
    for send in sends:
        seconds = seconds + send
    return seconds, lambda: chunk.categories | {"pp": sum(map(_first, sends), 0.0)}


def _first(seconds: Numeric) -> float:
    return float(np.ravel(seconds)[0])


def boundary_time(plan: Plan, stage: int) -> Numeric:
    """Time to send one micro-batch's activations (or their gradients) over the boundary behind a stage. [s]

    Each rank sends its shard ``b s / (cp tp) x hidden`` in BF16. Nothing moves when both stages share a rank.
    """
    ranks = plan.schedule.stage_rank(plan.strategy.pp, plan.strategy.vpp)
    if ranks[stage] == ranks[stage + 1]:
        return 0.0
    payload = 2 * plan.setting.local_tokens * plan.model.hidden
    pair = Group(2.0, np.where(plan.boundary_crosses_nodes(stage) > 0, 1.0, 2.0))
    seconds = collective_time("send-recv", payload, pair, plan.machine.links)
    if plan.errors is None:
        return seconds
    return seconds * plan.errors.raised(Message("send-recv", "pp", payload), "pp", "stage boundary", pair)


def gradient_reduction_time(plan: Plan, params: RankParams) -> Numeric:
    """Time to reduce the gradients of one stage at the end of the step. [s]"""
    return _one_after_the_other(plan, gradient_messages(plan, params))


def parameter_gather_time(plan: Plan, params: RankParams) -> Numeric:
    """Time to gather the updated weights of one stage from its replicas. [s]"""
    return _one_after_the_other(plan, gather_messages(plan, params))


def gradient_messages(plan: Plan, params: RankParams) -> tuple[Message, ...]:
    """What reduces the gradients of one stage at the end of the step.

    Reduce-scatter where the optimizer is sharded, all-reduce where it is not, and all-reduce over the replicas of a
    shard under hybrid sharding; dense and expert gradients over their own groups.
    """
    types = plan.state_types
    across: tuple[Message, ...] = ()
    if plan.sharding.inside_node:
        owned = RankParams(params.dense / plan.replicas.dense, params.routed / plan.replicas.routed)
        across = _messages(owned, types.grad, "all-reduce", "replica")
    if plan.sharding.per_micro_batch:
        return across
    collective = "reduce-scatter" if plan.sharding.optimizer else "all-reduce"
    return across + _messages(params, types.grad, collective, "shard")


def gather_messages(plan: Plan, params: RankParams) -> tuple[Message, ...]:
    """What gathers the updated weights of one stage."""
    return _messages(params, plan.state_types.param, "all-gather", "shard")


def _messages(params: RankParams, value_bytes: float, collective: str, over: str) -> tuple[Message, ...]:
    counts = {"dense": params.dense, "routed": params.routed}
    return tuple(Message(collective, f"{part}-{over}", value_bytes * count) for part, count in counts.items())


def _one_after_the_other(plan: Plan, messages: tuple[Message, ...]) -> Numeric:
    total: Numeric = 0.0
    for work in messages:
        seconds = collective_time(
            work.collective, work.size, plan.copies_of(plan.machine.group(plan.mesh, work.axis)), plan.machine.links
        )
        total = total + seconds * plan.raised(work, "dp", message_name(work))
    return total


def message_name(work: Message) -> str:
    """Name of a message about training state."""
    return f"{work.collective} of {work.axis.partition('-')[0]} state"


def optimizer_work(plan: Plan, rank: int) -> Traffic:
    """The Adam step of one rank: it is bound by HBM."""
    ranks = plan.schedule.stage_rank(plan.strategy.pp, plan.strategy.vpp)
    held = sum((plan.params[stage] for stage, owner in enumerate(ranks) if owner == rank), RankParams())
    return Traffic(update_bytes(held, plan.replicas, plan.state_types, plan.sharding))


def optimizer_time(plan: Plan, rank: int) -> Numeric:
    """Time of the Adam step of one rank. [s]"""
    work = optimizer_work(plan, rank)
    return traffic_time(work.hbm_bytes, plan.machine.gpu) * plan.raised(work, "optimizer", f"optimizer of rank {rank}")
