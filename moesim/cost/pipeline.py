"""Durations of every task of a training step: chunks, data-parallel communication, optimizer, stage boundaries."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric, first
from moesim.cost.blocks import Blocks, PricedBlock, chunk_blocks, host_times, plan_blocks, repriced
from moesim.cost.collectives import collective_time
from moesim.cost.exchanges import Place, behind, carried, windows
from moesim.cost.machine import Group
from moesim.cost.offload import offloaded_bytes, offloads, optimizer_parts, stall
from moesim.cost.plan import Plan
from moesim.cost.replication import gradient_buckets, parameter_gather_time, stage_reduction_time
from moesim.cost.sharing import beside, chunk_nic_time
from moesim.cost.slow import Slow
from moesim.cost.stage import (
    ChunkTime,
    ChunkWork,
    Keep,
    Ops,
    Piece,
    chunk_times,
    chunk_work,
    interleaved,
    sequential,
    two_batches,
)
from moesim.cost.update import update_parts
from moesim.timeline.step import Communication, Reduction, StepGraph, step_graph
from moesim.workload.ops import Message
from moesim.workload.stages import Stage

COMMUNICATION = ("ep", "tp", "cp", "pp", "dp")
"""Classes of messages between GPUs."""
CLASSES = (*COMMUNICATION, "host")
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
        if row not in self._found:
            self._found[row] = {name: value for name, value in self._parts[row]().items() if value}
        return self._found[row]

    @cached_property
    def _found(self) -> dict[int, dict[str, float]]:
        return {}


def plan_graph(plan: Plan) -> StepGraph:
    """The step graph of a plan: schedule, merged pairs, and where data-parallel communication goes."""
    strategy = plan.strategy
    sharding = plan.sharding
    once = not sharding.per_micro_batch or sharding.inside_node  # hybrid sharding still sums over its replicas
    reduce: Reduction = ("overlap" if strategy.overlap_grad_reduce else "after") if once else "none"
    if once and strategy.stale_gradients:
        reduce = "stale"
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
    if plan.slow is not None:
        return _with_slow_ranks(plan, plan.slow, blocks, keep)
    graph = plan_graph(plan)
    keep = keep or {}
    durations = np.zeros((graph.num_rows, *plan.shape))
    delays = np.zeros((graph.num_delay_rows, *plan.shape))
    parts_of: dict[int, Parts] = {}
    chunks = _Chunks(plan, blocks, keep)
    chunks.price(graph.rows)
    sends = [boundary_time(plan, stage) * keep.get("pp", 1.0) for stage in range(graph.num_stages - 1)]

    copies = offloads(plan)
    moved = offloaded_bytes(plan, blocks) if copies else (0.0,) * graph.num_stages
    beside_chunk = windows(graph)
    same: dict[tuple[str, int, ChunkKey], tuple[Numeric, Numeric]] = {}
    exchanges: dict[Place, tuple[Numeric, Numeric]] = {}  # what is left of each, and what hides

    def put(row: int, seconds: Numeric, parts: Parts) -> None:
        durations[row] = seconds
        parts_of[row] = parts

    def wait(place: Place) -> Numeric:
        """What is left of the copies of a chunk when it is done."""
        if not copies or place[0] == "W":
            return 0.0
        stages = (place[1],) if isinstance(place[1], int) else place[1]
        copied: Numeric = np.max(np.broadcast_arrays(*(moved[stage] for stage in stages)), axis=0)
        return stall(plan, copied, chunks.of(place).seconds, both_ways=len(stages) > 1)

    def exposed(place: Place, seconds: Numeric, pieces: Numeric) -> Numeric:
        """What is left of a reduction or gathering: it hides where its chunk leaves it the NIC, and beside copies."""
        window = beside_chunk[place]
        cover = chunks.left(*window, plan.replica_group) + wait(window)
        return behind(seconds, cover, pieces, plan.gather_share(window[0]))

    def reduction(stage: int) -> tuple[Numeric, Numeric]:
        seconds = stage_reduction_time(plan, stage)
        if not plan.strategy.overlap_grad_reduce or plan.strategy.stale_gradients:
            return seconds, seconds
        buckets = sum(gradient_buckets(plan, plan.trained[stage]).values(), 0.0)
        pieces = _layers(plan.stages[stage]) if plan.strategy.grad_bucket_bytes is None else buckets
        return seconds, exposed(("reduce", stage), seconds, pieces)

    def gathering(stage: int) -> tuple[Numeric, Numeric]:
        seconds = parameter_gather_time(plan, plan.trained[stage])
        if not plan.strategy.overlap_param_gather:
            return seconds, seconds
        return seconds, exposed(("gather", stage), seconds, _layers(plan.stages[stage]))

    def exchange(place: Place, stage: int, time: Callable[[int], tuple[Numeric, Numeric]]) -> None:
        key = (place[0], plan.alike[stage], chunks.key(beside_chunk[place]))
        if key not in same:
            whole, left = time(stage)
            shown = keep.get("dp", 1.0)
            same[key] = left * shown, np.maximum(whole - left, 0.0) * shown
        exchanges[place] = same[key]

    for place, row in graph.rows.items():
        match place:
            case "F" | "BW" | "B" | "W" as kind, int(stage):
                put(row, *_with_sends(plan, chunks.of(place), [_outgoing(kind, stage, sends)], wait(place)))
            case "OV", (int(forward), int(backward)):
                outgoing = [_outgoing("F", forward, sends), _outgoing("BW", backward, sends)]
                put(row, *_with_sends(plan, chunks.of(place), outgoing, wait(place)))
            case "reduce", int(stage):
                exchange(place, stage, reduction)
            case "gather", int(stage):
                exchange(place, stage, gathering)
            case "optimizer", int(rank):
                steps = [update_parts(plan, rank)]
                steps += [optimizer_parts(plan, rank)] if plan.strategy.optimizer_offload else []
                parts = {
                    name: sum((step[name] for step in steps if name in step), 0.0) * keep.get(name, 1.0)
                    for name in ("optimizer", "dp", "pcie")
                }
                put(row, sum(parts.values(), 0.0), partial(_firsts, parts))
            case _:
                raise ValueError(f"no price for a task {place[0]} of {place[1]}")
    longer = dict(carried(graph, plan.strategy.stale_gradients))
    for place, (left, _) in exchanges.items():
        seconds = left + exchanges[longer[place]][1] if place in longer else left
        put(graph.rows[place], seconds, partial(_firsts, {"dp": seconds}))
    if plan.strategy.overlap_p2p:
        for stage, send in enumerate(sends):
            busy, window = chunks.busy("F", stage), _as_it_is(chunks.of(("F", stage)).seconds, keep)
            delays[1 + stage] = beside(send, busy * (plan.boundary_crosses_nodes(stage) > 0), window)
    return StepTimes(graph, durations, delays, parts_of)


def _with_slow_ranks(plan: Plan, slow: Slow, blocks: Blocks, keep: Keep | None) -> StepTimes:
    """Tasks of the slow pipeline ranks and sends to and from them as the slow machine takes them, the rest as it is."""
    healthy = step_times(replace(plan, slow=None), blocks, keep)
    hurt_plan = replace(plan, slow=None, machine=slow.machine(plan.machine))
    hurt = step_times(hurt_plan, plan_blocks(hurt_plan), keep)
    owners = healthy.graph.stage_rank
    durations, delays, parts = healthy.durations.copy(), healthy.delays.copy(), dict(healthy._parts)
    for (kind, where), row in healthy.graph.rows.items():
        stage = where if isinstance(where, int) else where[0]
        if (stage if kind == "optimizer" else owners[stage]) in slow.ranks:
            durations[row], parts[row] = hurt.durations[row], hurt._parts[row]
    for boundary, ends in enumerate(pairwise(owners)):
        if set(ends) & set(slow.ranks):
            delays[1 + boundary] = hurt.delays[1 + boundary]
    return StepTimes(healthy.graph, durations, delays, parts)


ChunkKey = tuple[str, int, int]
"""Kind of a chunk, and the first stages of the composition of its forward or backward, and of the backward of a pair."""


class _Chunks:
    """Chunk times, priced once per distinct composition."""

    def __init__(self, plan: Plan, blocks: Blocks, keep: Keep) -> None:
        self._plan, self._blocks, self._keep = plan, blocks, keep
        self._keys = plan.alike
        self._known: dict[ChunkKey, ChunkTime] = {}
        self._busy: dict[tuple[str, int], Numeric] = {}
        half = plan.half if plan.strategy.two_batch_overlap else None
        self._halves = repriced(plan_blocks(half), half) if half is not None else None
        self._host = host_times(plan)

    def key(self, place: Place) -> ChunkKey:
        """What chunks of one composition have in common."""
        kind, where = place
        forward, backward = (where, -1) if isinstance(where, int) else where
        return kind, self._keys[forward], backward if backward < 0 else self._keys[backward]

    def of(self, place: Place) -> ChunkTime:
        """A chunk, or a merged pair."""
        key = self.key(place)
        if key not in self._known:
            self._known[key] = chunk_times([self._work(key)])[0]
        return self._known[key]

    def _both_halves(self, kind: str, stage: int) -> tuple[Piece, ...]:
        """A chunk of two half micro-batches; a weight gradient that was put off has no exchange to run beside."""
        layers = self._ops(kind, stage)
        if kind == "W":
            return sequential([*layers, *layers])
        return two_batches(layers, backward=kind != "F")

    def busy(self, kind: str, stage: int) -> Numeric:
        """Time that a chunk keeps the NIC busy. [s]"""
        key = (kind, self._keys[stage])
        if key not in self._busy:
            self._busy[key] = chunk_nic_time(self._plan, self._ops(kind, stage), self._keep)
        return self._busy[key]

    def left(self, kind: str, stage: int, group: Group) -> Numeric:
        """Time of a chunk that data-parallel messages can hide behind: where they need the NIC, its idle time. [s]"""
        seconds = self.of((kind, stage)).seconds
        return np.maximum(seconds - self.busy(kind, stage) * (np.asarray(group.nodes) > 1), 0.0)

    def _ops(self, kind: str, stage: int) -> list[Ops]:
        blocks = self._blocks if self._halves is None else self._halves
        chunk: list[PricedBlock] = chunk_blocks(self._plan, self._plan.stages[stage], blocks)
        if kind == "F":
            return [block.forward for block in chunk]
        if kind == "BW":
            return [block.backward for block in reversed(chunk)]
        return [block.split[kind == "W"] for block in reversed(chunk)]

    def price(self, places: Iterable[Place]) -> None:
        """Run the chunks of a step together."""
        keys = dict.fromkeys(self.key(place) for place in places if place[0] in ("F", "BW", "B", "W", "OV"))
        self._known |= zip(keys, chunk_times([self._work(key) for key in keys]), strict=True)

    def _work(self, key: ChunkKey) -> ChunkWork:
        plan, (kind, stage, behind) = self._plan, key
        if kind == "OV":
            pieces = interleaved(self._ops("F", stage), self._ops("BW", behind))
        elif self._halves is None:
            pieces = sequential(self._ops(kind, stage))
        else:
            pieces = self._both_halves(kind, stage)
        return chunk_work(pieces, plan.shape, self._host, plan.contention(kind), self._keep)


def _layers(stage: Stage) -> Numeric:
    """Pieces in which the weights of a stage are reduced or gathered: its layers and ends. [-]"""
    return float(max(stage.num_layers + stage.embedding + stage.loss, 1))


def _as_it_is(seconds: Numeric, keep: Keep) -> Numeric:
    """A time; in columns that hide a class that of the first column, which hides none. [s]

    How densely a window is filled with what shares the NIC does not rise where something else in it is hidden.
    """
    if not keep:
        return seconds
    shown = np.min(np.broadcast_arrays(*keep.values()), axis=0) > 0
    return np.where(shown, seconds, np.asarray(seconds)[:1])


def _outgoing(kind: str, stage: int, sends: list[Numeric]) -> Numeric | None:
    """The send that follows a chunk: activations to the next stage, gradients to the one before, none behind a W."""
    if kind == "W":
        return None
    boundary = stage if kind == "F" else stage - 1
    return sends[boundary] if 0 <= boundary < len(sends) else None


def _with_sends(
    plan: Plan, chunk: ChunkTime, outgoing: list[Numeric | None], wait: Numeric = 0.0
) -> tuple[Numeric, Parts]:
    """Blocking sends hold up the rank after the chunk; overlapped ones are delays of the step graph instead.

    `wait`: for copies to or from the host that outlast the chunk. [s]
    """
    sends = [] if plan.strategy.overlap_p2p else [send for send in outgoing if send is not None]
    seconds: Numeric = chunk.seconds + wait
    for send in sends:
        seconds = seconds + send
    return seconds, lambda: chunk.categories | {"pp": sum(map(first, sends), 0.0), "pcie": first(wait)}


def _firsts(parts: dict[str, Numeric]) -> dict[str, float]:
    return {name: first(seconds) for name, seconds in parts.items()}


def boundary_time(plan: Plan, stage: int) -> Numeric:
    """Time to send one micro-batch's activations (or their gradients) over the boundary behind a stage. [s]

    Each rank sends its shard ``b s / (cp tp) x hidden`` in BF16, all stages at the same time. Nothing moves when both
    stages share a rank.
    """
    ranks = plan.stage_rank
    if ranks[stage] == ranks[stage + 1]:
        return 0.0
    payload = 2 * plan.setting.local_tokens * plan.model.hidden
    crosses = plan.boundary_crosses_nodes(stage)

    def seconds() -> Numeric:
        pair = Group(2.0, np.where(crosses > 0, 1.0, 2.0), plan.stage_ring.reach)
        alone = collective_time("send-recv", payload, pair, plan.machine.links)
        if plan.errors is None:
            return alone
        return alone * plan.errors.raised(Message("send-recv", "pp", payload), "pp", "stage boundary", pair)

    return plan.once("stage boundary", np.asarray(crosses).tobytes(), seconds)
