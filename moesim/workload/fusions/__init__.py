"""Kernels that a strategy joins: one file each, found by name.

A fusion rewrites the operations of a layer: fewer launches, and no tensor written and read again between two of them.
What it computes stays the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from moesim.base.registry import Registry
from moesim.workload.ops import Block, Op

Ops = tuple[Op, ...]


@dataclass(frozen=True)
class Fused:
    """What a fusion declares.

    Attributes
    ----------
    rewrite
        Operations of a forward or backward to those with the fusion, by the bytes of a cast value.
    needs_experts, needs_casts, needs_passes
        Whether there is something to join only with routed experts, with casts to a lower precision, or with layout
        passes around the exchange.
    """

    rewrite: Callable[[Ops, float], Ops]
    needs_experts: bool = False
    needs_casts: bool = False
    needs_passes: bool = False


fusions: Registry[Fused] = Registry("fusion", package="moesim.workload.fusions", entry_points="moesim.fusions")


def fused(block: Block, names: tuple[str, ...], cast_bytes: float) -> Block:
    """The block with the kernels of all named fusions joined."""
    for name in names:
        rewrite = fusions.get(name).rewrite
        block = replace(block, forward=rewrite(block.forward, cast_bytes), backward=rewrite(block.backward, cast_bytes))
    return block
