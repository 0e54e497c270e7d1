"""A decoder layer under a recompute policy."""

from collections.abc import Mapping
from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.attention import attention_block
from moesim.workload.dense import dense_block
from moesim.workload.experts import expert_block
from moesim.workload.fusions import fused
from moesim.workload.model import Layer, Moe
from moesim.workload.ops import Block, Gemm, Op
from moesim.workload.pointwise import operator_by_operator
from moesim.workload.recompute import RecomputePolicy
from moesim.workload.setting import Setting


def layer_block(layer: Layer, hidden: int, setting: Setting, attention: Block | None = None) -> Block:
    """One decoder layer, nothing recomputed; `attention`: what stands before its feed-forward, where that was made."""
    norms = layer.norms // 2
    if attention is None:
        attention = attention_part(layer, hidden, setting)
    if isinstance(layer.feed_forward, Moe):
        rest = _scoped(expert_block(layer.feed_forward, hidden, setting, norms), AHEAD | {"": "moe"})
    else:
        rest = _scoped(dense_block(layer.feed_forward, hidden, setting, norms), {"": "mlp"})
    whole = Block(attention.forward + rest.forward, rest.backward + attention.backward, attention.saved + rest.saved)
    if setting.fusion.operators:
        whole = operator_by_operator(whole)
    return fused(whole, setting.fusions, setting.recipe.cast_bytes)


def attention_part(layer: Layer, hidden: int, setting: Setting) -> Block:
    """What stands before the feed-forward of a layer."""
    return _scoped(attention_block(layer.attention, hidden, setting, layer.norms // 2), {"": "attn"})


AHEAD = {"router": "moe-router", "expert-norm": "moe-router", "shared": "moe-router"}
"""What of a routed block runs before the exchange and can be captured without it, by the beginning of its name."""


def _scoped(block: Block, scopes: Mapping[str, str]) -> Block:
    """The block whose operations know what a CUDA graph captures them with; shared experts in the exchange are of it."""

    def scope(op: Op) -> str:
        ahead = (scopes[start] for start in scopes if start and op.name.startswith(start) and op.segment == "attention")
        return next(ahead, scopes[""])

    def scoped(op: Op) -> Op:
        found = scope(op)
        return op if op.scope == found else replace(op, scope=found)

    forward, backward = (tuple(scoped(op) for op in ops) for ops in (block.forward, block.backward))
    return replace(block, forward=forward, backward=backward)


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
        replace(saved, num_bytes=saved.num_bytes * (1 - dropped[saved.name])) if saved.name in dropped else saved
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
