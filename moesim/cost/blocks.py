"""Priced layers and chunks of a plan: each distinct layer is priced once."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Power
from moesim.cost.memory_bound import traffic_time
from moesim.cost.once import Once
from moesim.cost.plan import Plan, composition
from moesim.cost.power import follows_clock, step_energy, sustained_clock
from moesim.cost.price import calls_time, launch_time, launches, op_time
from moesim.cost.stage import (
    HostTimes,
    Ops,
    Piece,
    PricedOp,
    chunk_times,
    chunk_work,
    interleaved,
    sequential,
    two_batches,
)
from moesim.workload.accumulation import added_gradients, staged_gradients
from moesim.workload.adapting import adapted_block, frozen_block
from moesim.workload.embedding import embedding_block, head_block, mtp_block
from moesim.workload.gathering import sharded_block, unhidden
from moesim.workload.layers import attention_part, joined, layer_block, recomputed
from moesim.workload.model import Layer, Model
from moesim.workload.ops import Block, ExpertLeg, FusedExperts, Message, Op, Saved, Work
from moesim.workload.precision import recipes
from moesim.workload.setting import Setting
from moesim.workload.sharding import RankParams, embedding_params, head_params, layer_params, mtp_params
from moesim.workload.splitting import split_backward
from moesim.workload.stages import Stage

Name = tuple[Layer, bool, bool] | str
"""A layer, recomputed or not, kept in BF16 or not; or one of the ends of the model: ``embedding``, ``head``, ``mtp``."""


@dataclass(frozen=True)
class PricedBlock:
    """A block with its parameters on one rank, those that are trained, and the time of each operation.

    ``whole`` is the block with nothing recomputed: its saved tensors come back while its backward runs. ``scale``: of
    the launches of operations that no method has ``added``. ``clocked``: at what clock what follows it runs; None at that
    of the measured kernels. ``prices``: what is known of prices at that clock; None where only the plan knows them.
    """

    block: Block
    whole: Block
    params: RankParams
    trained: RankParams
    plan: Plan
    scale: Numeric = 1.0
    added: frozenset[str] = frozenset()
    clocked: "Clocked | None" = None

    @cached_property
    def forward(self) -> Ops:
        """Operations of the forward with their times, priced when they are first asked for; memory never asks."""
        return _prices(self.block.forward, self)

    @cached_property
    def backward(self) -> Ops:
        """Operations of the backward with their times, what it recomputes first."""
        return _prices(self.block.recompute + self.block.backward, self)

    def price(self) -> None:
        """Price all operations now."""
        _ = self.forward, self.backward

    @cached_property
    def split(self) -> tuple[Ops, Ops]:
        """The backward in two parts, input gradients and weight gradients."""
        inputs, weights = split_backward(tuple(priced.op for priced in self.backward))
        later = [priced for priced in self.backward if priced.op.held_bytes is not None]
        at_once = [priced for priced in self.backward if priced.op.held_bytes is None]
        return _as(inputs, at_once), _as(weights, later)


class Blocks(dict[Name, PricedBlock]):
    """Priced blocks by name."""

    clocked: "Clocked | None" = None

    @property
    def clock(self) -> Numeric:
        """What the power limit leaves of the clock of the measured kernels. [-]"""
        return 1.0 if self.clocked is None else self.clocked.clock


class Clocked:
    """The clock that the power limit sustains, worked out when a price first asks for it; memory never asks.

    Parameters
    ----------
    plan, blocks
        The plan, and its blocks at the clock at which kernels are measured.
    power
        What the GPU may draw, and what draws it.
    """

    def __init__(self, plan: Plan, blocks: Blocks, power: Power) -> None:
        self._plan, self._blocks, self._power = plan, blocks, power

    @cached_property
    def clock(self) -> Numeric:
        """What is left of the clock. [-]"""
        return _clock(self._plan, self._blocks, self._power)

    @cached_property
    def plan(self) -> Plan:
        """The plan on a machine at that clock; the plan itself where the limit leaves it alone."""
        if np.min(self.clock) == 1:
            return self._plan
        gpu = self._plan.machine.gpu
        rates = {name: rate * self.clock for name, rate in gpu.rates.items()}
        return replace(self._plan, machine=replace(self._plan.machine, gpu=replace(gpu, rates=rates)))


def host_times(plan: Plan) -> HostTimes:
    """What the host does beside launches; a graph of everything leaves one launch around a chunk."""
    host = plan.machine.host
    return HostTimes(host.sync, host.graph if plan.captures("full") else host.chunk)


def _as(ops: tuple[Op, ...], priced: list[PricedOp]) -> Ops:
    return tuple(price._replace(op=op) for op, price in zip(ops, priced, strict=True))


def plan_blocks(plan: Plan) -> Blocks:
    """Blocks of a plan, made once."""
    return plan.once("blocks", None, lambda: price_blocks(plan))


def price_blocks(plan: Plan, shared: Once | None = None) -> Blocks:
    """Price every distinct layer of the model, and its ends, at the clock that the power limit sustains.

    Parameters
    ----------
    plan
        What to price.
    shared
        Where layers and prices are kept for other plans on the same GPU, links and software; left out, they are the
        plan's own.
    """
    if shared is not None:
        plan.share(shared)
    return _at_clock(plan, _burst_blocks(plan))


def _at_clock(plan: Plan, blocks: Blocks) -> Blocks:
    power = plan.machine.gpu.power
    if power is None:
        return blocks
    clocked = Clocked(plan, blocks, power)
    held = Blocks({name: replace(block, clocked=clocked) for name, block in blocks.items()})
    held.clocked = clocked
    return held


def _clock(plan: Plan, blocks: Blocks, power: Power) -> Numeric:
    """Clock that the power limit leaves, over all chunks of the pipeline; bubbles between them are too long to count."""
    seconds: Numeric = 0.0
    times: dict[tuple[object, ...], int] = {}
    chunks: dict[tuple[object, ...], list[PricedBlock]] = {}
    for stage in plan.stages:
        key = composition(plan, stage)
        times[key] = times.get(key, 0) + 1
        chunks.setdefault(key, chunk_blocks(plan, stage, blocks))
    uses: dict[int, int] = {}
    works, counts = [], []
    for key, chunk in chunks.items():
        for kind, pieces in _pieces(plan, chunk):
            works.append(chunk_work(pieces, plan.shape, host_times(plan), plan.contention(kind), {}))
            counts.append(times[key])
        for block in chunk:
            uses[id(block)] = uses.get(id(block), 0) + times[key] * (2 if plan.strategy.two_batch_overlap else 1)
    for spent, count in zip(chunk_times(works), counts, strict=True):
        seconds = seconds + count * spent.seconds
    ops = [
        (priced, uses[id(block)])
        for block in blocks.values()
        if id(block) in uses
        for priced in block.forward + block.backward
    ]
    energy = step_energy([(priced.op.work, count) for priced, count in ops], plan.machine.gpu, power)
    clocked = sum((priced.seconds * count for priced, count in ops if follows_clock(priced.op.work)), 0.0)
    return sustained_clock(energy, seconds, clocked, power)


def _pieces(plan: Plan, chunk: list[PricedBlock]) -> list[tuple[str, tuple[Piece, ...]]]:
    """What a chunk runs for a micro-batch, forward and backward."""
    forward = [block.forward for block in chunk]
    backward = [block.backward for block in reversed(chunk)]
    if plan.strategy.overlap_ep:
        return [("OV", interleaved(forward, backward))]
    if plan.strategy.two_batch_overlap:
        return [("F", two_batches(forward)), ("BW", two_batches(backward, backward=True))]
    return [("F", sequential(forward)), ("BW", sequential(backward))]


def _burst_blocks(plan: Plan) -> Blocks:
    """Price every distinct layer of the model, and its ends, at the clock at which kernels are measured."""
    model, setting, mesh = plan.model, plan.setting, plan.mesh
    dense = setting.dense
    ends = plan.prices.once("ends", dense, lambda: _ends(model, dense))
    embedding = embedding_params(model, mesh, plan.sequence_length)
    head = head_params(model, mesh, own_embedding=len(plan.stages) == 1)
    found = Blocks(embedding=_priced(plan, ends[0], embedding), head=_priced(plan, ends[1], head))
    for first in dict.fromkeys(plan.alike):
        for key in _keys(plan, plan.stages[first]):
            if key not in found:
                found[key] = _layer(plan, *key)
    if model.mtp_layers:
        last = _layer_block(plan.prices, model.layers[-1], model.hidden, setting)
        module = joined(mtp_block(model.hidden, dense), last, ends[1])
        found["mtp"] = _priced(plan, module, mtp_params(model, mesh), recompute=True)
    return found


def _ends(model: Model, setting: Setting) -> tuple[Block, Block]:
    """Embedding and head."""
    return embedding_block(model.hidden, setting), head_block(model.hidden, model.vocab, setting)


def _layer_block(known: Once, layer: Layer, hidden: int, setting: Setting) -> Block:
    """A layer, made once; its attention, too, which layers share that differ in what concerns experts."""
    dense = setting.dense
    if layer.moe is None:
        setting = dense

    def made() -> Block:
        part = known.once(
            "attention", (layer.attention, layer.norms, dense), lambda: attention_part(layer, hidden, dense)
        )
        return layer_block(layer, hidden, setting, part)

    return known.once("layer", (layer, setting), made)


def repriced(blocks: Blocks, plan: Plan) -> Blocks:
    """The same blocks for another plan, which differs in how fast things are and in columns."""
    burst = Blocks({name: replace(block, plan=plan, clocked=None) for name, block in blocks.items()})
    found = _at_clock(plan, burst)
    for block in (*burst.values(), *found.values()):
        block.price()  # in this order it is listed what nobody measured
    return found


def _keys(plan: Plan, stage: Stage) -> list[tuple[Layer, bool, bool]]:
    """What the layers of a stage are called among the blocks."""
    repeated = plan.recomputed_layers(stage)
    layers = plan.model.layers
    return [(layers[index], place < repeated, plan.in_bf16(index)) for place, index in enumerate(stage.layers)]


def _layer(plan: Plan, layer: Layer, repeated: bool, in_bf16: bool) -> PricedBlock:
    setting, hidden = plan.setting, plan.model.hidden
    if in_bf16:
        setting = replace(setting, recipe=recipes.get("bf16"))
    runtime = plan.machine.runtime
    launched = runtime.launches_per_moe_layer if layer.moe else runtime.launches_per_dense_layer
    block = _layer_block(plan.prices, layer, hidden, setting)
    params = layer_params(layer, hidden, plan.mesh)
    captured = sorted({op.scope for op in block.forward if op.scope in plan.strategy.cuda_graph.split("+")})
    row = 2 * setting.local_tokens * hidden
    static = tuple(Saved(f"graph-input-{scope}", row) for scope in captured)  # inputs stay at their address
    block = replace(block, saved=block.saved + static)
    scale: Numeric = runtime.launches_per_operation if layer.moe else 1.0
    if launched is not None:
        plain = _layer_block(plan.prices, layer, hidden, setting.plain)
        scale = launched / sum((launches(op, plan.mesh) for op in plain.forward + plain.backward), 0.0)
    return _priced(plan, block, params, repeated, scale, layer)


def _priced(
    plan: Plan,
    block: Block,
    params: RankParams,
    recompute: bool = False,
    scale: Numeric = 1.0,
    layer: Layer | None = None,
) -> PricedBlock:
    strategy = plan.strategy
    plain = frozenset(op.name for op in block.forward + block.backward)
    block, trained = _adapted(plan, block, params, layer)
    runtime, grad_bytes = plan.machine.runtime, plan.state_types.grad
    if plan.sharding.gradients:
        aside = runtime.grad_bucket and strategy.overlap_grad_reduce
        block = staged_gradients(block, trained.total, grad_bytes, aside)
    elif runtime.grad_add is not None:
        halves = 2 if strategy.two_batch_overlap else 1
        block = added_gradients(block, grad_bytes, runtime.grad_add, halves, strategy.expert_waves)
    added = frozenset(op.name for op in block.forward + block.backward) - plain
    kept = recomputed(block, plan.recompute) if recompute and plan.recompute else block
    split = sharded_block(
        kept,
        plan.gathered_bytes(params, trained),
        trained.weighted(grad_bytes, grad_bytes),
        plan.sharding,
        strategy.reshard_after_forward,
        strategy.overlap_grad_reduce,
    )
    if runtime.blocking_gathers:
        split = unhidden(split)
    return PricedBlock(split, block, params, trained, plan, scale, added)


def _adapted(plan: Plan, block: Block, params: RankParams, layer: Layer | None) -> tuple[Block, RankParams]:
    """The block and what of it is trained: all of it, or the adapters of a layer; ends of the model have none."""
    adapting, hidden = plan.adapting, plan.model.hidden
    if adapting is None:
        return block, params
    if layer is None:
        return frozen_block(block), RankParams()
    trained = adapting.layer_params(layer, hidden, plan.mesh)
    return adapted_block(block, layer, hidden, plan.setting.local_tokens, adapting), trained


def _prices(ops: tuple[Op, ...], block: PricedBlock) -> Ops:
    """Operations with their times; the software's launches per layer count all but those that a method has added."""
    plan, clocked = block.plan, block.clocked
    mesh, machine = plan.mesh, plan.machine
    captured = {scope: plan.captures(scope) for scope in {op.scope for op in ops}}

    def seconds(op: Op) -> Numeric:
        at = clocked.plan if clocked is not None and follows_clock(op.work) else plan
        return _seconds(at, op)

    def launches(op: Op) -> Numeric:
        times = 1.0 if op.name.removesuffix(" again") in block.added else block.scale
        replayed = captured[op.scope]
        return times * launch_time(op, mesh, machine, replayed) + calls_time(op, machine, replayed)

    return tuple(PricedOp(op, seconds(op), launches(op)) for op in ops)


def _seconds(plan: Plan, op: Op) -> Numeric:
    """Time of an operation, raised in the columns that raise its family. [s]"""
    carrier = _carrier(plan, op.work)
    alone = plan.prices.once(op.category, (op.work, *carrier) if carrier else op.work, lambda: _alone(plan, op))
    return alone if plan.errors is None else alone * plan.raised(op.work, op.category, op.name)


def _carrier(plan: Plan, work: Work) -> tuple[object, ...]:
    """What else of a plan the price of a work depends on: who it goes between, and how."""
    if isinstance(work, Message):
        return plan.group(work.axis), plan.strategy.overlap_tp
    if isinstance(work, ExpertLeg | FusedExperts):
        return plan.expert_group, plan.strategy.transport
    return ()


def _alone(plan: Plan, op: Op) -> Numeric:
    """Time of an operation with the copies that its software makes around it. [s]"""
    alone = op_time(op, plan.mesh, plan.machine, plan.transport)
    if plan.machine.runtime.sequence_copies and not plan.strategy.overlap_tp and _along_sequence(work := op.work):
        alone = alone + traffic_time(2 * work.size, plan.machine.gpu) * (np.asarray(plan.mesh.tp) > 1)
    if plan.machine.runtime.shard_copies and _of_shards(op.work):
        group = plan.machine.group(plan.mesh, op.work.axis)
        alone = alone + plan.machine.runtime.shard_copies * group.size * (np.asarray(op.work.size) > 0)
    return alone


def _of_shards(work: Work) -> TypeGuard[Message]:
    """Whether a message gathers or scatters state that is split over the replicas."""
    return isinstance(work, Message) and work.axis.endswith("-shard")


def _along_sequence(work: Work) -> TypeGuard[Message]:
    """Whether a message gathers or scatters shards of the sequence over the tensor-parallel ranks."""
    return isinstance(work, Message) and work.axis == "tp" and work.collective in ("all-gather", "reduce-scatter")


def chunk_blocks(plan: Plan, stage: Stage, blocks: Blocks) -> list[PricedBlock]:
    """Blocks of one chunk in the order of the forward."""
    chunk = [blocks["embedding"]] if stage.embedding else []
    chunk += [blocks[key] for key in _keys(plan, stage)]
    chunk += [blocks["mtp"] for _ in range(stage.mtp)]
    return chunk + ([blocks["head"]] if stage.loss else [])
