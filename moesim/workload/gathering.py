"""Weights that are split over the replicas: gathered before a block runs, gradients reduced right after it."""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.ops import Block, Message, Op
from moesim.workload.sharding import RankParams, Sharding


def sharded_block(
    block: Block, gathered: RankParams, reduced: RankParams, sharding: Sharding, reshard: bool, overlapped: bool
) -> Block:
    """Add the messages that a sharding needs around a block, per micro-batch.

    Split weights are gathered one block ahead of the forward, and again ahead of the backward unless they stay whole
    (``reshard`` false). Split gradients are reduced as soon as the block's backward is done; where that is
    ``overlapped``, nothing waits for it before the end of the chunk. ``gathered`` and ``reduced`` are the bytes of the
    weights and of the gradients of each kind. [B]
    """
    forward, backward, recompute = block.forward, block.backward, block.recompute
    if sharding.weights:
        forward = _gathers("weights", gathered) + forward
    if sharding.weights and reshard:
        again = _gathers("weights-again", gathered)
        if recompute:
            recompute = again + recompute
        else:
            backward = again + backward
    if sharding.gradients:
        backward = backward + _reductions(reduced, overlapped)
    return replace(block, forward=forward, backward=backward, recompute=recompute)


def _gathers(name: str, size: RankParams) -> tuple[Op, ...]:
    def gather(kind: str, num_bytes: Numeric) -> Op:
        work = Message("all-gather", f"{kind}-shard", num_bytes)
        return Op(f"{name}-{kind}", "dp", work, kernels=2, prefetch=True)

    return (gather("dense", size.dense), gather("routed", size.routed))


def _reductions(size: RankParams, overlapped: bool) -> tuple[Op, ...]:
    def reduce(kind: str, num_bytes: Numeric) -> Op:
        work = Message("reduce-scatter", f"{kind}-shard", num_bytes)
        return Op(f"gradients-{kind}", "dp", work, kernels=2, detached=overlapped, held_bytes=0.0)

    return (reduce("dense", size.dense), reduce("routed", size.routed))


def unhidden(block: Block) -> Block:
    """The block where gathers of its weights run alone: none starts early, and what follows waits for it."""

    def alone(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(replace(op, prefetch=False) for op in ops)

    return replace(
        block, forward=alone(block.forward), backward=alone(block.backward), recompute=alone(block.recompute)
    )
