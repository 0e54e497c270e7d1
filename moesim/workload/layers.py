"""A decoder layer under a recompute policy."""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.attention import attention_block
from moesim.workload.dense import dense_block
from moesim.workload.experts import expert_block
from moesim.workload.model import Layer, Moe
from moesim.workload.ops import Block, Gemm, Op
from moesim.workload.recompute import RecomputePolicy
from moesim.workload.setting import Setting


def layer_block(layer: Layer, hidden: int, setting: Setting) -> Block:
    """One decoder layer, nothing recomputed."""
    norms = layer.norms // 2
    attention = attention_block(layer.attention, hidden, setting, norms)
    if isinstance(layer.feed_forward, Moe):
        rest = expert_block(layer.feed_forward, hidden, setting, norms)
    else:
        rest = dense_block(layer.feed_forward, hidden, setting, norms)
    return Block(attention.forward + rest.forward, rest.backward + attention.backward, attention.saved + rest.saved)


def joined(*blocks: Block) -> Block:
    """Blocks one after another as one."""
    return Block(
        sum((block.forward for block in blocks), ()),
        sum((block.backward for block in reversed(blocks)), ()),
        sum((block.saved for block in blocks), ()),
    )


def recomputed(block: Block, chosen: tuple[RecomputePolicy, ...]) -> Block:
    """Return the block with the chosen modules dropped after the forward and repeated before the backward.

    The repeated operations come first in the backward and keep their segment, so that an overlap of forward and
    backward can move them to the segment they serve. The LM head that ends an MTP module is never repeated.
    """
    modules = {policy.module for policy in chosen if policy.module}
    whole = any(policy.whole_layer for policy in chosen)
    again: dict[str, float] = {}
    dropped: dict[str, float] = {}
    for policy in chosen:
        again.update(policy.again)
        dropped.update(policy.dropped)
    shares = {
        op.name: 1.0 if whole or op.modules & modules else again.get(op.name, 0.0)
        for op in block.forward
        if op.segment != "head"
    }
    repeated = tuple(_again(op, shares) for op in block.forward if shares.get(op.name))
    kept = tuple(
        replace(saved, num_bytes=saved.num_bytes * (1 - dropped.get(saved.name, 0.0)))
        for saved in block.saved
        if not saved.modules & modules
    )
    return replace(block, saved=kept, recompute=repeated)


def _again(op: Op, shares: dict[str, float]) -> Op:
    """The repeated share of an op under another name; it needs what is repeated of what it needed."""
    needs = tuple(f"{name} again" for name in op.needs if shares.get(name))
    work = op.work
    if isinstance(work, Gemm) and shares[op.name] < 1:
        work = replace(work, n=work.n * shares[op.name])
    return replace(op, name=f"{op.name} again", needs=needs, work=work)


def saved_bytes(block: Block) -> Numeric:
    """Bytes that a block keeps from forward to backward. [B]"""
    return sum((saved.num_bytes for saved in block.saved), 0.0)
