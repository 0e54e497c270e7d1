"""Permute and unpermute in one kernel each, in place of a sort of the indices and a gather."""

from dataclasses import replace

from moesim.workload.fusions import Fused, Ops, fusions

PASSES = ("permute", "unpermute", "sort-by-expert", "unsort")
"""Layout passes by the beginning of their names."""


def one_kernel_a_pass(ops: Ops, _: float) -> Ops:
    """Each layout pass with one launch; the rows it reads and writes stay."""
    return tuple(
        replace(op, kernels=op.kernels / 2) if op.name.startswith(PASSES) and op.category == "memory_bound" else op
        for op in ops
    )


fusions.add(
    "permute",
    Fused(one_kernel_a_pass, needs_experts=True, needs_passes=True),
    summary="Layout passes around the expert exchange in one kernel each.",
    source="megatron-lm",
)
