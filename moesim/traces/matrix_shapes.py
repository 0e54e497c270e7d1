"""Shapes of matrix products: from the arguments of the operator that launched a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from moesim.traces.event_table import Detail


@dataclass(frozen=True, order=True)
class MatrixShape:
    """A matrix product ``batch x [m, k] x [k, n]``; ``strided`` where a leading dimension is odd."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    dtype: str

    @property
    def flop(self) -> float:
        """Multiplications and additions. [FLOP]"""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def leading(self) -> int:
        """Smallest of the dimensions along which operands lie in memory. [-]"""
        return min(self.n, self.k)


OPERANDS = {
    "aten::mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::bmm": (0, 1),
    "aten::baddbmm": (1, 2),
    "aten::_scaled_mm": (0, 1),
    "aten::matmul": (0, 1),
    "aten::linear": (0, 1),
    "aten::addmm_": (1, 2),
    "aten::_int_mm": (0, 1),
    "aten::_addmm_activation": (1, 2),
}
"""Arguments that are multiplied, by operator."""


@lru_cache(maxsize=65536)
def parsed(text: str) -> Any:
    """Value of a JSON text; None for none."""
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None


@lru_cache(maxsize=65536)
def matrix_shape(op: str, detail: Detail) -> MatrixShape | None:
    """Shape of the product of an operator; None where it is none, or its shapes are not known.

    Examples
    --------
    >>> matrix_shape("aten::addmm", Detail(dims="[[8], [4, 2], [2, 8], [], []]", types='["float", "float", "float"]'))
    MatrixShape(op='addmm', batch=1, m=4, n=8, k=2, dtype='float')
    """
    places = OPERANDS.get(op)
    dims, types = parsed(detail.dims), parsed(detail.types)
    if places is None or not isinstance(dims, list) or len(dims) <= max(places):
        return None
    first, second = (whole_dims(dims[place]) for place in places)
    if first is None or second is None:
        return None
    dtype = str(types[places[0]]) if isinstance(types, list) and len(types) > places[0] else ""
    name = op.removeprefix("aten::")
    if op == "aten::linear":
        if len(first) < 1 or len(second) != 2 or first[-1] != second[1]:
            return None
        rows = 1
        for size in first[:-1]:
            rows *= size
        return MatrixShape(name, 1, rows, second[0], second[1], dtype)
    if len(first) == len(second) == 2 and first[1] == second[0]:
        return MatrixShape(name, 1, first[0], second[1], first[1], dtype)
    if len(first) == len(second) == 3 and first[0] == second[0] and first[2] == second[1]:
        return MatrixShape(name, first[0], first[1], second[2], first[2], dtype)
    return None


def whole_dims(value: Any) -> Sequence[int] | None:
    """Sizes of one tensor; None for a scalar, a list of tensors, or what is no size."""
    if not isinstance(value, list) or not value:
        return None
    good = all(isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**48 for size in value)
    return value if good else None
