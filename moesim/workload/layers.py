"""A decoder layer under a recompute policy, and the chunk of a model that a stage runs."""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.attention import attention_block
from moesim.workload.batch import MicroBatch
from moesim.workload.experts import LayoutPasses, expert_block
from moesim.workload.model import Layer
from moesim.workload.ops import Block, Op
from moesim.workload.recompute import RecomputePolicy


def layer_block(layer: Layer, hidden: int, batch: MicroBatch, passes: LayoutPasses) -> Block:
    """One decoder layer, nothing recomputed."""
    attention = attention_block(layer.attention, hidden, batch)
    experts = expert_block(layer.moe, hidden, batch, passes)
    return Block(
        attention.forward + experts.forward,
        experts.backward + attention.backward,
        attention.saved + experts.saved,
    )


def recomputed(block: Block, chosen: tuple[RecomputePolicy, ...]) -> Block:
    """Return the block with the chosen modules dropped after the forward and repeated before the backward.

    The repeated operations come first in the backward and keep their segment, so that an overlap of forward and
    backward can move them to the segment they serve.
    """
    modules = {policy.module for policy in chosen}
    whole = any(policy.whole_layer for policy in chosen)
    again = tuple(_again(op) for op in block.forward if whole or op.modules & modules)
    kept = tuple(saved for saved in block.saved if not saved.modules & modules)
    return replace(block, saved=kept, recompute=again)


def _again(op: Op) -> Op:
    return op.renamed(" again")


def saved_bytes(block: Block) -> Numeric:
    """Bytes that a block keeps from forward to backward. [B]"""
    return sum((saved.num_bytes for saved in block.saved), 0.0)
