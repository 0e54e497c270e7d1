"""Kernels that say what a GPU can do: alone, with known shapes, those that the library chooses today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.spec.hardware import GpuSpec
from moesim.studies.trace_ops import remarks
from moesim.traces.event_table import Ints
from moesim.traces.intervals import union
from moesim.traces.matrix_shapes import MatrixShape
from moesim.traces.op_work import AttentionShape, MovedShape, Shape, rate_of, shape_of
from moesim.traces.ranks import Across
from moesim.traces.summary import SECOND, Work

FAMILIES = {"gemm": "gemm", "attention": "attention", "elementwise": "memory"}
"""Family of a fit by class of kernels."""
PLAIN_OPS = (
    "aten::add",
    "aten::add_",
    "aten::mul",
    "aten::mul_",
    "aten::copy_",
    "aten::neg",
    "aten::sub",
    "aten::fill_",
)
"""Operators that read and write every byte once."""
NEARLY = 0.98
"""Share of a kernel that nothing else may run beside. [-]"""


@dataclass
class Samples:
    """Rows of one family as its table has them, and how many kernels were left out, by reason."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    read: int = 0


def kernel_samples(works: Sequence[Work], spec: GpuSpec) -> dict[str, Samples]:
    """Samples of matrix products, attention and plain memory-bound kernels, the median time of each shape."""
    found = {name: Samples() for name in FAMILIES.values()}
    times: dict[tuple[str, Shape], list[float]] = {}
    for work in works:
        alone = _alone(work)
        for place in np.flatnonzero(np.isin(work.family.astype(str), list(FAMILIES))).tolist():
            family = FAMILIES[str(work.family[place])]
            found[family].read += 1
            shape, why = _shape(work, place, alone, spec)
            if shape is None:
                found[family].dropped[why] += 1
            else:
                duration = int(work.table.duration[work.links.work[place]])
                times.setdefault((family, shape), []).append(duration / SECOND)
    for (family, shape), values in times.items():
        found[family].rows.append(_row(shape) | {"time_us": 1e6 * float(np.median(values))})
    return found


def _shape(work: Work, place: int, alone: NDArray[np.bool_], spec: GpuSpec) -> tuple[Shape | None, str]:
    """Shape of a kernel that is a sample, or why it is none."""
    table, op, family = work.table, int(work.links.op[place]), str(work.family[place])
    if op < 0:
        return None, "no operator in the file tells its shape"
    name, kernel = table.name_of(op), table.name_of(int(work.links.work[place]))
    shape = shape_of(family, name, table.detail_of(op))
    if shape is None:
        return None, "its operator tells no shape"
    if not alone[place]:
        return None, "another kernel runs beside it"
    if isinstance(shape, MatrixShape):
        if shape.batch != 1:
            return None, "a batch of products"
        told = remarks(kernel, spec)
        if told:
            return None, "; ".join(told)
    elif isinstance(shape, AttentionShape):
        if shape.causal is not True:
            return None, "not causal, or it does not say"
    elif name not in PLAIN_OPS or "vectorized_elementwise_kernel" not in kernel:
        return None, "no plain kernel over operands that lie in one piece"
    if not isinstance(shape, MovedShape) and rate_of(shape.dtype) not in ("bf16", "fp16"):
        return None, "format is not modelled"
    return shape, ""


def _alone(work: Work) -> NDArray[np.bool_]:
    """Work that runs nearly alone on its GPU: kernels beside it take bandwidth and multiprocessors."""
    table, places = work.table, work.links.work
    found = np.ones(len(places), dtype=bool)
    lines = table.device[places].astype(np.int64) << 32 | (table.stream[places] & 0xFFFFFFFF)
    start, end = table.start[places], table.end[places]
    for line in np.unique(lines).tolist():
        mine = lines == line
        others = (table.device[places] == table.device[places][mine][0]) & ~mine
        if not others.any():
            continue
        busy = union(start[others], end[others])
        beside = _until(busy, end[mine]) - _until(busy, start[mine])
        found[mine] = beside <= (1 - NEARLY) * np.maximum(end[mine] - start[mine], 1)
    return found


def _until(busy: tuple[Ints, Ints], times: Ints) -> Ints:
    """How much of disjoint intervals lies before each time. [ns]"""
    low, high = busy
    total = np.concatenate([[0], np.cumsum(high - low)])
    at = np.searchsorted(low, times, side="right")
    last = np.maximum(at - 1, 0)
    return np.where(at > 0, total[last] + np.minimum(times, high[last]) - low[last], 0)


def _row(shape: Shape) -> dict[str, Any]:
    """Columns of docs/kernel_tables.md."""
    if isinstance(shape, MatrixShape):
        return {"m": shape.m, "n": shape.n, "k": shape.k, "dtype": rate_of(shape.dtype)}
    if isinstance(shape, AttentionShape):
        return {
            "batch": shape.batch,
            "seq_q": shape.queries,
            "seq_kv": shape.keys,
            "heads_q": shape.heads,
            "heads_kv": shape.kv_heads,
            "head_dim_qk": shape.query_dim,
            "head_dim_v": shape.value_dim,
            "dtype": rate_of(shape.dtype),
            "causal": "True",
            "pass": "bwd" if shape.backward else "fwd",
        }
    return {"bytes": shape.bytes, "kernel": "copy"}


def collective_samples(
    beside: Across | None, per_node: float, source: str
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Collectives without waiting: from the last arrival to the first end, where all ranks of the group are there."""
    rows: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    for reason, count in (beside.rejected if beside is not None else {}).items():
        dropped[reason] += count
    for match in beside.matches if beside is not None else ():
        one = next(iter(match.members.values()))
        ranks = len(match.members)
        if match.size is None or not one.operation:
            dropped["its size is not told"] += 1
        elif not match.complete:
            dropped["not all ranks of the group are here"] += 1
        elif match.transfer_s <= 0:
            dropped["no time is left without waiting"] += 1
        else:
            size = {"collective": one.operation, "size": match.size, "ranks": float(ranks)}
            rows.append({**size, "per_node": min(float(ranks), per_node), "time": match.transfer_s, "source": source})
    return rows, dropped
