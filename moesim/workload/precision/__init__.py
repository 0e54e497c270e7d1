"""Precision recipes: one file each, found by name.

A recipe says which number format the GEMMs use, what it costs to cast to it, and what it changes in messages, saved
activations and weights. Attention core, norms, router, embedding and LM head stay in BF16 in every recipe.
"""

from dataclasses import dataclass

from moesim.base.registry import Registry


@dataclass(frozen=True)
class Recipe:
    """One precision recipe.

    Attributes
    ----------
    rate
        Key of the GPU's GEMM rates for forward and dgrad: ``bf16``, ``fp16``, ``fp8``, ``fp8-rowwise``,
        ``fp8-blockwise``, ``mxfp8``, ``nvfp4``.
    operand_bytes
        Bytes of a GEMM operand value, its scales included. [B]
    saved_bytes
        Bytes of a GEMM input value kept for wgrad. [B]
    cast_bytes
        HBM bytes to cast one value: read BF16, write each copy that the GEMMs need. 0 without casts. [B]
    cast_kernels
        Kernels of one cast. [-]
    weight_copies_bytes
        Bytes per parameter of cast weights (both orientations) kept beside the 16-bit weights. [B]
    wgrad_rate
        Rate of the weight gradient, where it differs from ``rate``.
    row_bytes
        Bytes of a value that the expert exchange dispatches. Every recipe leaves messages in BF16, as the frameworks do
        unless told otherwise. [B]
    beside_output_bytes
        Bytes of a value of the attention output that are kept cast beside it. The core keeps it in BF16 for its own
        backward; Transformer Engine casts that again for wgrad, except with delayed scaling. [B]
    """

    rate: str
    operand_bytes: float = 2.0
    saved_bytes: float = 2.0
    cast_bytes: float = 0.0
    cast_kernels: int = 0
    weight_copies_bytes: float = 0.0
    wgrad_rate: str | None = None
    row_bytes: float = 2.0
    beside_output_bytes: float = 0.0

    @property
    def casts(self) -> bool:
        """Whether operands have to be cast."""
        return self.cast_bytes > 0


recipes: Registry[Recipe] = Registry("precision", package="moesim.workload.precision", entry_points="moesim.precision")
