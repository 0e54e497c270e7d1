"""Peak memory of every pipeline rank: state, activations in flight, transient buffers, and what the runtime holds."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.blocks import Blocks, PricedBlock, chunk_blocks
from moesim.cost.plan import Plan, composition
from moesim.timeline.graph import IntArray
from moesim.timeline.schedule import Schedule, held_chunks
from moesim.workload.experts import expert_rows
from moesim.workload.layers import layer_block, saved_bytes
from moesim.workload.sharding import state_bytes

TENSORS = ("weights", "gradients", "optimizer", "activations", "logits", "workspace", "transport")
RUNTIME = ("slack", "context", "nccl")
LOGITS = ("logits", "softmax")


@dataclass(frozen=True)
class RankMemory:
    """Bytes by class on one pipeline rank at its peak. [B]

    ``allocated`` is the sum of the tensors, ``reserved`` adds the allocator's slack, ``peak`` adds the CUDA context and
    NCCL's buffers: what must fit.
    """

    classes: dict[str, Numeric]

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
        return self.reserved + self.classes["context"] + self.classes["nccl"]


def rank_memory(plan: Plan, blocks: Blocks) -> tuple[RankMemory, ...]:
    """Memory of each pipeline rank.

    The peak is looked for over the moments of the rank's program at which it holds most chunks; the optimizer step adds
    no tensors of its own, so it lies below.
    """
    strategy, machine = plan.strategy, plan.machine
    ranks = np.array(plan.schedule.stage_rank(strategy.pp, strategy.vpp))
    held_by = _held(plan.schedule, strategy.pp, plan.num_micro_batches, strategy.vpp, plan.extra_warmup)
    kept = _stage_bytes(plan, blocks)
    workspace = _workspace(plan, blocks)
    transport = plan.transport.buffer_bytes(plan.leg(), machine.group(plan.mesh, "ep"), machine)
    communicators = sum((plan.mesh.size(axis) > 1) * 1.0 for axis in ("tp", "dp-cp", "ep", "etp", "edp", "pp"))
    found = []
    for rank in range(strategy.pp):
        stages, held = held_by[rank]
        activations, logits = _at_peak(held, [kept[stage] for stage in stages], plan.shape)
        states = [
            state_bytes(plan.params[stage], plan.mesh, plan.state_types, plan.sharded_optimizer)
            for stage in np.flatnonzero(ranks == rank)
        ]
        classes: dict[str, Numeric] = {
            "weights": sum((state.weights for state in states), 0.0),
            "gradients": sum((state.gradients for state in states), 0.0),
            "optimizer": sum((state.optimizer for state in states), 0.0),
            "activations": activations,
            "logits": logits,
            "workspace": workspace,
            "transport": transport,
        }
        classes["slack"] = machine.memory.allocator_slack * (activations + logits + workspace)
        classes["context"] = machine.memory.context
        classes["nccl"] = machine.memory.nccl_per_communicator * communicators
        found.append(RankMemory(classes))
    return tuple(found)


@lru_cache(maxsize=32)
def _held(schedule: Schedule, *shape: int) -> tuple[tuple[IntArray, IntArray], ...]:
    """Stages of each rank, and how many chunks of each it holds at the moments that matter."""
    return tuple(held_chunks(program) for program in schedule.order(*shape))


def _stage_bytes(plan: Plan, blocks: Blocks) -> list[tuple[Numeric, Numeric]]:
    """Activation and logit bytes that one micro-batch leaves in each stage. [B]"""
    known: dict[object, tuple[Numeric, Numeric]] = {}
    found = []
    for stage in plan.stages:
        key = composition(plan.model, stage)
        if key not in known:
            known[key] = _kept(chunk_blocks(plan, stage, blocks))
        found.append(known[key])
    return found


def _kept(chunk: list[PricedBlock]) -> tuple[Numeric, Numeric]:
    tensors = [saved for priced in chunk for saved in priced.block.saved]
    logits = sum((saved.num_bytes for saved in tensors if saved.name in LOGITS), 0.0)
    return sum((saved.num_bytes for saved in tensors), 0.0) - logits, logits


def _at_peak(held: IntArray, kept: list[tuple[Numeric, Numeric]], shape: tuple[int, ...]) -> tuple[Numeric, Numeric]:
    """Activations and logits at the moment at which their sum is largest, for each plan of a batch of that shape."""
    counts = held.T.reshape(*held.T.shape, *(1,) * len(shape))
    activations, logits = (
        sum(
            (count * np.broadcast_to(part[which], shape) for count, part in zip(counts, kept, strict=True)),
            np.zeros((len(held), *shape)),
        )
        for which in (0, 1)
    )
    peak = np.argmax(activations + logits, axis=0)[np.newaxis]
    return tuple(np.take_along_axis(part, peak, axis=0)[0] for part in (activations, logits))


def _workspace(plan: Plan, blocks: Blocks) -> Numeric:
    """Transient tensors of the layer that runs: what its recomputation brings back, and the rows around the combine."""
    model = plan.model
    passes = plan.transport.passes(plan.leg(), plan.machine.group(plan.mesh, "ep"))
    largest: Numeric = 0.0
    for layer in dict.fromkeys(model.layers):
        whole = saved_bytes(layer_block(layer, model.hidden, plan.batch, passes))
        again = whole - saved_bytes(blocks[layer].block)
        rows = expert_rows(layer.moe, plan.batch)
        # output of the second expert GEMM, and its copy in wire order (its gradient in the backward)
        largest = np.maximum(largest, again + 2 * 2 * rows * model.hidden)
    return largest
