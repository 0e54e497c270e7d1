"""What an operator computes and moves, from the shapes that a trace tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moesim.traces.collectives import dtype_bytes
from moesim.traces.event_table import Detail
from moesim.traces.matrix_shapes import MatrixShape, matrix_shape, parsed, whole_dims

RATES = {"bfloat16": "bf16", "half": "fp16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}
"""Key of the GPU's GEMM rate by type, as PyTorch spells it."""


@dataclass(frozen=True)
class AttentionShape:
    """Attention of ``batch`` sequences; ``causal`` is None where the trace does not tell."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    query_dim: int
    value_dim: int
    causal: bool | None
    backward: bool
    dtype: str

    @property
    def flop(self) -> float:
        """Both products; half of them under a causal mask, twice as many backward. [FLOP]"""
        pairs = self.batch * self.heads * self.queries * self.keys / (2 if self.causal else 1)
        return 2.0 * pairs * (self.query_dim + self.value_dim) * (2 if self.backward else 1)


@dataclass(frozen=True)
class MovedShape:
    """Bytes that an elementwise operator reads and writes once. [B]"""

    bytes: int
    dtype: str


HEADS_FIRST = ("scaled_dot_product", "efficient_attention_forward_heads_first")
FLASH = ("_flash_attention", "_efficient_attention")
CAUSAL_AT = {"scaled_dot_product_flash": 4, "scaled_dot_product_cudnn": 6, "_flash_attention_forward": 8}
"""Argument that tells whether the mask is causal, by a word in the name of an operator."""


def rate_of(dtype: str) -> str | None:
    """Key of the rate at which matrices of a type are multiplied; None for types without one."""
    return RATES.get(dtype.lower().removeprefix("c10::"))


@lru_cache(maxsize=65536)
def attention_shape(op: str, detail: Detail) -> AttentionShape | None:
    """Shape of an attention operator; None where it is none, or its shapes are not known.

    Examples
    --------
    >>> dims = "[[16, 559, 16, 64], [16, 559, 4, 64], [16, 559, 4, 64]]"
    >>> shape = attention_shape("aten::_flash_attention_forward", Detail(dims=dims, types='["c10::Half"]'))
    >>> shape.batch, shape.heads, shape.kv_heads, shape.queries, shape.causal
    (16, 16, 4, 559, None)
    """
    name = op.removeprefix("aten::")
    heads_first, flash = name.startswith(("_scaled_dot", "scaled_dot")), name.startswith(FLASH)
    dims, types = parsed(detail.dims), parsed(detail.types)
    if not (heads_first or flash) or not isinstance(dims, list) or not isinstance(types, list) or not types:
        return None
    backward = "backward" in name
    tensors = [whole_dims(one) for one in dims[1 if backward else 0 :][:3]]
    if len(tensors) < 3 or any(one is None or len(one) != 4 for one in tensors):
        return None
    query, key, value = (list(one or ()) for one in tensors)
    length, heads = (2, 1) if heads_first else (1, 2)
    return AttentionShape(
        batch=query[0],
        heads=query[heads],
        kv_heads=key[heads],
        queries=query[length],
        keys=key[length],
        query_dim=query[3],
        value_dim=value[3],
        causal=_causal(name, parsed(detail.values)),
        backward=backward,
        dtype=str(types[1 if backward and len(types) > 1 else 0]),
    )


def _causal(name: str, values: Any) -> bool | None:
    for word, place in CAUSAL_AT.items():
        if word in name and "backward" not in name and isinstance(values, list) and len(values) > place:
            return {"True": True, "False": False}.get(str(values[place]))
    return None


@lru_cache(maxsize=65536)
def moved_shape(op: str, detail: Detail) -> MovedShape | None:
    """Bytes of an elementwise operator: its tensors read once, and a result as large as the largest written once.

    Examples
    --------
    >>> moved_shape("aten::add", Detail(dims="[[8, 4], [4], []]", types='["float", "float", "Scalar"]'))
    MovedShape(bytes=272, dtype='float')
    """
    dims, types = parsed(detail.dims), parsed(detail.types)
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    sizes = []
    for one, kind in zip(dims, types, strict=False):
        shape, width = whole_dims(one), dtype_bytes(str(kind))
        if shape is not None and width is not None:
            sizes.append(math.prod(shape) * width)
    if not sizes:
        return None
    name = op.removeprefix("aten::")
    written = 0 if name == "copy_" else sizes[0] if name.endswith("_") else max(sizes)  # a copy names its target
    return MovedShape(sum(sizes) + written, str(types[0]))


Shape = MatrixShape | AttentionShape | MovedShape
MOVED = ("elementwise", "normalization", "softmax")
"""Classes whose kernels read their operands and write their result once."""


def shape_of(family: str, op: str, detail: Detail) -> Shape | None:
    """Shape of the work of a class that an operator launched."""
    if family == "gemm":
        return matrix_shape(op, detail)
    if family == "attention":
        return attention_shape(op, detail)
    return moved_shape(op, detail) if family in MOVED else None
