"""Peak memory of every pipeline rank: the largest phase of the step, and what the runtime holds beside tensors.

Phases: ``forward`` (all activations; ``loss`` where the logits come on top), ``backward`` (activations, and the layer that runs), ``optimizer``
(training state, and the copies that the update makes). Training state is there all the time. A saving of activations
below another phase's floor therefore shows none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.blocks import Blocks, plan_blocks
from moesim.cost.compression import cast_bytes, error_feedback_bytes
from moesim.cost.kept import kept as kept_bytes
from moesim.cost.kept import stage_bytes, waiting
from moesim.cost.offload import expert_bytes, largest_layer, staging_bytes
from moesim.cost.plan import Plan
from moesim.cost.update import orthogonalise_bytes
from moesim.timeline.graph import IntArray
from moesim.timeline.schedule import Schedule, backward_first, kept_chunks
from moesim.workload.adapting import DEQUANTISE
from moesim.workload.layers import saved_bytes
from moesim.workload.sharding import RankParams, state_bytes
from moesim.workload.stages import Stage

STATE = ("weights", "gradients", "optimizer")
TRANSIENT = ("activations", "logits", "workspace", "unsharded", "update")
TENSORS = (*STATE, *TRANSIENT)
CLASSES = (*TENSORS, "transport", "slack", "context", "nccl")

FRAGMENTATION = 0.02
"""Share of the transient tensors that the allocator loses even under pressure (assumed). [-]"""

Classes = Mapping[str, Numeric]


@dataclass(frozen=True)
class RankMemory:
    """Bytes by class on one pipeline rank in each phase, and in the phase that is its peak. [B]

    ``allocated`` is the sum of the tensors, ``reserved`` adds the allocator's slack, ``peak`` adds the CUDA context,
    NCCL's buffers and those of the expert transport, which it gets from CUDA or NVSHMEM and not from the allocator of
    tensors: what must fit. ``host``: what stands in the memory of the host instead.
    """

    phases: Mapping[str, Classes]
    classes: Classes
    host: Numeric = 0.0

    @property
    def allocated(self) -> Numeric:
        """Tensors. [B]"""
        return sum((self.classes[name] for name in TENSORS), 0.0)

    @property
    def reserved(self) -> Numeric:
        """Tensors and what the allocator holds beside them. [B]"""
        return self.allocated + self.classes["slack"]

    @property
    def peak(self) -> Numeric:
        """What must fit. [B]"""
        return self.reserved + sum((self.classes[name] for name in ("transport", "context", "nccl")), 0.0)

    @property
    def peak_phase(self) -> str:
        """Phase of the peak, of the first column. [-]"""
        totals = {name: np.ravel(total(classes))[0] for name, classes in self.phases.items()}
        return max(totals, key=lambda name: totals[name])


def total(classes: Classes) -> Numeric:
    """Sum over all classes. [B]"""
    return sum(classes.values(), 0.0)


def plan_memory(plan: Plan) -> tuple[RankMemory, ...]:
    """Memory of each pipeline rank of a plan, worked out once."""
    return plan.once("memory", None, lambda: rank_memory(plan, plan_blocks(plan)))


def rank_memory(plan: Plan, blocks: Blocks) -> tuple[RankMemory, ...]:
    """Memory of each pipeline rank."""
    strategy = plan.strategy
    ranks = np.array(plan.stage_rank)
    shape = strategy.pp, plan.num_micro_batches, strategy.vpp, plan.extra_warmup
    held_by = _held(plan.schedule, strategy.overlap_ep, *shape)
    kept, later = stage_bytes(plan, blocks, kept_bytes), stage_bytes(plan, blocks, waiting)
    transient, moved = transients(plan, blocks), strategy.activation_offload
    found = []
    for rank in range(strategy.pp):
        stages, whole, split = held_by[rank]
        state = rank_state(plan, rank, [int(stage) for stage in np.flatnonzero(ranks == rank)])
        parts = [((1 - moved) * kept[stage][0], kept[stage][1]) for stage in stages]
        parts += [(later[stage], 0.0) for stage in stages]
        activations, logits = at_peak(np.column_stack([whole, split]), parts, plan.shape)
        own = np.max([_wide(kept[stage][1], plan.shape) for stage in stages], axis=0)
        transport = _transport(plan, whole, [plan.stages[stage] for stage in stages])
        phases = rank_phases(plan, state, transient, transport, (activations, logits, own))
        away = sum((count * kept[stage][0] for count, stage in zip(whole.max(axis=0), stages, strict=True)), 0.0)
        host = moved * away + state.on_host
        found.append(RankMemory(phases, _largest(phases, plan.shape), host))
    return tuple(found)


@dataclass(frozen=True)
class RankState:
    """What a pipeline rank holds whatever it runs. [B]

    ``base``: by class, all the time; ``casts`` beside the backward, ``update`` beside the optimizer; ``on_host`` instead
    of on the GPU. ``ends``: it holds the loss.
    """

    base: Classes
    casts: Numeric
    update: Numeric
    on_host: Numeric
    ends: bool


@dataclass(frozen=True)
class Transient:
    """What the layer that runs takes beside the kept activations, the same on every rank. [B]"""

    staging: Numeric
    workspace: Numeric
    unsharded: Numeric


def transients(plan: Plan, blocks: Blocks) -> Transient:
    """What the layer that runs takes."""
    workspace = _workspace(plan, blocks)
    if plan.strategy.overlap_ep:  # a layer of the forward, while the one of the backward beside it is not let go yet
        workspace = workspace + largest_layer(blocks)
    return Transient(staging_bytes(plan, blocks), workspace, _unsharded(plan, blocks))


def rank_state(plan: Plan, rank: int, owned: list[int]) -> RankState:
    """What a pipeline rank that owns some stages holds; it depends on neither micro-batches nor recomputation."""
    strategy, machine = plan.strategy, plan.machine
    axes = ("tp", "cp", "dp-cp", "ep", "etp", "edp", "pp")
    communicators = sum((plan.mesh.size(axis) > 1) * 1.0 for axis in axes)
    params = sum((plan.trained[stage] for stage in owned), RankParams())
    state = state_bytes(params, plan.replicas, plan.state_types, plan.sharding)
    kept_errors = sum((error_feedback_bytes(plan, stage) for stage in owned), 0.0)
    copies = 2.0 if strategy.stale_gradients else 1.0  # those of the step before are on the wire
    frozen = sum((plan.frozen_bytes(plan.params[stage]) for stage in owned), 0.0)
    here = 1 - strategy.optimizer_offload
    away = sum((expert_bytes(plan, plan.params[stage]) for stage in owned), 0.0)
    base: dict[str, Numeric] = {
        "context": machine.memory.context + machine.memory.extra,
        "nccl": machine.memory.nccl_per_communicator * communicators,
        "weights": state.weights + frozen - away,
        "gradients": copies * state.gradients + kept_errors,
        "optimizer": here * state.optimizer,
    }
    return RankState(
        base,
        cast_bytes(plan, params),
        here * _update(plan, params) + orthogonalise_bytes(plan, rank),
        strategy.optimizer_offload * state.optimizer + away,
        any(plan.stages[stage].loss for stage in owned),
    )


def rank_phases(
    plan: Plan,
    state: RankState,
    transient: Transient,
    transport: Numeric,
    peak: tuple[Numeric, Numeric, Numeric],
) -> dict[str, Classes]:
    """Bytes by class of one rank in each phase.

    Parameters
    ----------
    plan, state, transient
        The plan, what the rank holds, and what the layer that runs takes.
    transport
        Buffers of the expert transport. [B]
    peak
        Activations and logits where their sum is largest, and the logits of one micro-batch. [B]
    """
    activations, logits, own = peak
    base = {**state.base, "transport": transport}
    left = np.maximum(logits - own, 0.0)  # the micro-batch in its backward gave its logits back
    return {
        "loss" if state.ends else "forward": _phase(
            plan,
            base,
            activations=activations,
            logits=logits,
            workspace=transient.staging,
            unsharded=transient.unsharded,
        ),
        "backward": _phase(
            plan,
            base,
            activations=activations,
            logits=left,
            workspace=transient.workspace + transient.staging,
            unsharded=transient.unsharded + state.casts,
        ),
        "optimizer": _phase(plan, base, update=state.update),
    }


def _transport(plan: Plan, held: IntArray, stages: list[Stage]) -> Numeric:
    """Buffers of the expert transport; a recomputed dispatch gives its buffer back. [B]"""
    if plan.leg is None:
        return 0.0
    return transport_buffers(plan, float((held @ np.array([routed_layers(plan, stage) for stage in stages])).max()))


def routed_layers(plan: Plan, stage: Stage) -> int:
    """Layers of a stage that exchange rows. [-]"""
    return sum(plan.model.layers[index].moe is not None for index in stage.layers)


def transport_buffers(plan: Plan, in_flight: float) -> Numeric:
    """Buffers of the expert transport for a number of layers whose rows are kept. [B]"""
    if plan.leg is None:
        return 0.0
    repeats = any(policy.whole_layer or policy.module == "moe" for policy in plan.recompute)
    fused = plan.setting.products.fused_forward  # its rows are copied where the backward needs them
    chunks = 1.0 if repeats or fused else in_flight
    return plan.transport.buffer_bytes(plan.leg, plan.expert_group, plan.machine, chunks)


def _phase(plan: Plan, base: dict[str, Numeric], **transient: Numeric) -> Classes:
    """All classes of one phase; the allocator's slack grows with what comes and goes.

    Near the capacity the allocator gives cached blocks back before it fails: slack shrinks to what it cannot avoid.
    """
    memory = plan.machine.memory
    moving = sum(transient.values(), 0.0)
    wished, floor = memory.allocator_slack * moving, np.minimum(memory.allocator_slack, FRAGMENTATION) * moving
    room = plan.machine.gpu.memory_capacity - total(base | transient)
    classes = base | transient | {"slack": np.clip(room, floor, wished)}
    return {name: classes.get(name, 0.0) for name in CLASSES}


def _largest(phases: Mapping[str, Classes], shape: tuple[int, ...]) -> Classes:
    """Classes of the largest phase, for each column."""
    sizes = np.array([_wide(total(classes), shape) for classes in phases.values()])
    every = np.array([[_wide(classes[name], shape) for name in CLASSES] for classes in phases.values()], dtype=float)
    peak = np.argmax(sizes, axis=0)[np.newaxis, np.newaxis]
    return dict(zip(CLASSES, np.take_along_axis(every, peak, axis=0)[0], strict=True))


def _wide(value: Numeric, shape: tuple[int, ...]) -> NDArray[np.floating[Any]]:
    return np.asarray(value) if getattr(value, "shape", ()) == shape else np.broadcast_to(value, shape)


@lru_cache(maxsize=32)
def _held(schedule: Schedule, merged: bool, *shape: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
    """Stages of each rank, and how many chunks of each it holds, whole or for a weight gradient, when it matters."""
    programs = schedule.order(*shape)
    return tuple(kept_chunks(backward_first(program) if merged else program) for program in programs)


def at_peak(held: IntArray, kept: list[tuple[Numeric, Numeric]], shape: tuple[int, ...]) -> tuple[Numeric, Numeric]:
    """Activations and logits at the moment at which their sum is largest, for each plan of a batch of that shape."""
    counts = held.T.reshape(*held.T.shape, *(1,) * len(shape))
    activations, logits = (
        sum(
            (count * _wide(part[which], shape) for count, part in zip(counts, kept, strict=True)),
            np.zeros((len(held), *shape)),
        )
        for which in (0, 1)
    )
    peak = np.argmax(activations + logits, axis=0)[np.newaxis]
    at_peak = tuple(np.take_along_axis(part, peak, axis=0)[0] for part in (activations, logits))
    return at_peak[0], at_peak[1]


def _workspace(plan: Plan, blocks: Blocks) -> Numeric:
    """Transient tensors of the layer whose backward runs. [B]

    What its recomputation brings back, and two gradients of its largest tensor (one comes in, one goes out). A segment
    of several layers comes back as a whole. Weights in few bits stand in BF16 while their product runs.
    """
    layers = max(plan.segment(stage) for stage in plan.stages)
    largest: Numeric = 0.0
    for name, priced in blocks.items():
        if isinstance(name, str):
            continue
        again = saved_bytes(priced.whole) - saved_bytes(priced.block)
        tensor: Numeric = 0.0
        for saved in priced.whole.saved:
            tensor = np.maximum(tensor, saved.num_bytes)
        if name[1]:
            again = layers * again + (layers - 1) * saved_bytes(priced.block)
        widened: Numeric = 0.0
        if plan.adapting is not None:
            for op in (op for op in priced.block.forward if op.name.endswith(DEQUANTISE)):
                widened = np.maximum(widened, plan.adapting.widened_bytes(op))
        largest = np.maximum(largest, again + 2 * tensor + widened)
    return largest


def _unsharded(plan: Plan, blocks: Blocks) -> Numeric:
    """Whole weights of the block that runs and of the one gathered ahead, and its gradients before they are split. [B]

    Gradients stand there in BF16, and again as the input of their reduction; a bucket for the latter is the runtime's.
    """
    sharding = plan.sharding
    grad = 2.0 + (0.0 if plan.machine.runtime.grad_bucket else plan.state_types.grad)
    live = plan.machine.runtime.max_live_params
    weights: Numeric = 0.0
    gradients: Numeric = 0.0
    for priced in blocks.values():
        share = 1.0 if live is None else np.minimum(1.0, live / priced.params.total)
        weights = np.maximum(weights, share * plan.gathered_bytes(priced.params, priced.trained).total)
        gradients = np.maximum(gradients, share * grad * priced.trained.total)
    held = 2.0 * weights if sharding.weights else 0.0
    if sharding.weights and not plan.strategy.reshard_after_forward:
        whole = (plan.gathered_bytes(*both).total for both in zip(plan.params, plan.trained, strict=True))
        held = max(whole, key=lambda value: float(np.max(value)))
    copied = plan.strategy.replicated_experts * _expert_params(plan)  # of the layer that runs, with their gradients
    return held + (gradients if sharding.gradients else 0.0) + copied * (2.0 + 4.0)


def _expert_params(plan: Plan) -> Numeric:
    """Parameters of one expert on one rank. [-]"""
    moe = plan.model.moe
    return moe.expert_params(plan.model.hidden) / plan.mesh.etp if moe else 0.0


def _update(plan: Plan, params: RankParams) -> Numeric:
    """FP32 copies of lower-precision gradients that the update works on. [B]"""
    if plan.state_types.grad >= 4 or not plan.machine.runtime.upcast_gradients:
        return 0.0
    owned = params.share(plan.replicas.dense, plan.replicas.routed) if plan.sharding.optimizer else params.total
    return 4.0 * owned
