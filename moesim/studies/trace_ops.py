"""Operators of a trace beside the roofline of their GPU and its calibrated prices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from moesim.base.errors import SpecError, did_you_mean
from moesim.spec import library
from moesim.spec.calibration import CalibrationSpec
from moesim.spec.hardware import GpuSpec
from moesim.studies.kernel_prices import Asked, KernelPrice, gpu_with, kernel_price
from moesim.studies.trace_machine import collective_price, gpu_in, machine_of
from moesim.traces.collectives import Collective, collectives
from moesim.traces.event_table import EventTable
from moesim.traces.matrix_shapes import MatrixShape, parsed
from moesim.traces.op_work import AttentionShape, MovedShape, Shape, rate_of, shape_of
from moesim.traces.summary import SECOND, Work
from moesim.workload.ops import AttentionCore, Gemm, Traffic

ALIGN = re.compile(r"align(\d+)")
OLD = re.compile(r"cutlass_(\d\d)_|(volta|turing|ampere)_|sm(\d\d)_")
GENERATIONS = {"volta": 70, "turing": 75, "ampere": 80}


@dataclass(frozen=True)
class TracedOp:
    """Operators of one kind and shape. Times in s, of all kernels of a class that one operator launched.

    Attributes
    ----------
    family, op, shape
        Class, operator (or kernel, where no operator is known), and shape as text.
    count, median_s, least_s, total_s
        How many, and how long.
    flop, bytes
        Of one; None where the trace does not tell. [FLOP, B]
    roofline_s
        Time at the rates of the datasheet, None without them.
    predicted_s, low_s, high_s, evidence
        Calibrated price with its 90 % interval and grade; None where the model has no price.
    kernel, remarks
        Longest kernel, and what makes it an outlier.
    """

    family: str
    op: str
    shape: str
    count: int
    median_s: float
    least_s: float
    total_s: float
    flop: float | None
    bytes: float | None
    roofline_s: float | None
    predicted_s: float | None
    low_s: float | None
    high_s: float | None
    evidence: str | None
    kernel: str
    remarks: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one. [-]"""
        return None if self.predicted_s is None else self.predicted_s / self.median_s - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        rates = {
            "flop_per_s": self.flop / self.median_s if self.flop else None,
            "bytes_per_s": self.bytes / self.median_s if self.bytes else None,
            "roofline_share": self.roofline_s / self.median_s if self.roofline_s else None,
        }
        return {**asdict(self), **rates, "error": self.error}


@dataclass(frozen=True)
class PricedCollective:
    """A collective of a trace, and its price in the usual node of the GPU; None where the model has none. [s]"""

    told: Collective
    predicted_s: float | None


@dataclass(frozen=True)
class TracedOps:
    """Operators of a trace, the longest in sum first; ``gpu`` is the spec they are compared with."""

    gpu: str | None
    ops: tuple[TracedOp, ...]
    collectives: tuple[PricedCollective, ...]

    def errors(self, family: str = "gemm", least_flop: float = 0.0) -> list[float]:
        """Errors of the prices of a class, of operators from some work on. [-]"""
        rows = (one for one in self.ops if one.family == family and (one.flop or 0.0) >= least_flop)
        return [error for one in rows if (error := one.error) is not None]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        moved = [
            {
                **{name: getattr(one.told, name) for name in ("operation", "group_size", "dtype", "told_by", "time_s")},
                "size_bytes": one.told.size,
                "algorithm_bandwidth": one.told.algorithm_bandwidth,
                "bus_bandwidth": one.told.bus_bandwidth,
                "predicted_s": one.predicted_s,
            }
            for one in self.collectives
        ]
        return {"gpu": self.gpu, "ops": [one.to_dict() for one in self.ops], "collectives": moved}


def traced_ops(
    works: Sequence[Work], gpu: str | None = None, family: str | None = None, own: tuple[CalibrationSpec, ...] = ()
) -> TracedOps:
    """Operators of one or several files of the same kind of GPU.

    Parameters
    ----------
    works
        GPU work of the files.
    gpu
        Spec to compare with; that of the name in the file where left out.
    family
        Only this class.
    own
        The user's calibrations.
    """
    families = sorted({str(name) for work in works for name in work.family})
    if family is not None and family not in families:
        raise SpecError.single("--class", "", f"the trace has no class '{family}'", did_you_mean(family, families))
    name = library.find("gpus", gpu.lower()) if gpu else gpu_in(works)
    spec = gpu_with(name, own) if name else None
    found: dict[tuple[str, str, str], list[tuple[int, list[int]]]] = {}
    shapes: dict[tuple[str, str, str], Shape | None] = {}
    for number, work in enumerate(works):
        for key, shape, kernels in _instances(work, family):
            found.setdefault(key, []).append((number, kernels))
            shapes[key] = shape
    ops = [_op(key, shapes[key], groups, works, spec, own) for key, groups in found.items()]
    ops.sort(key=lambda one: -one.total_s)
    moved = [one for work in works for one in collectives(work)] if family in (None, "nccl", "communication") else []
    machine = machine_of(name) if name and moved else None
    priced = (PricedCollective(one, None if machine is None else collective_price(one, machine)) for one in moved)
    return TracedOps(name, tuple(ops), tuple(priced))


def _instances(work: Work, family: str | None) -> list[tuple[tuple[str, str, str], Shape | None, list[int]]]:
    """Operators, or kernels without one, with their kernels of one class."""
    table = work.table
    groups: dict[tuple[str, int], list[int]] = {}
    for place in range(len(work.links.work)):
        name = str(work.family[place])
        if family is None or name == family:
            op = int(work.links.op[place])
            groups.setdefault((name, op if op >= 0 else -1 - place), []).append(place)
    return [(*_named(table, work, name, op, places), places) for (name, op), places in groups.items()]


def _named(
    table: EventTable, work: Work, family: str, op: int, places: Sequence[int]
) -> tuple[tuple[str, str, str], Shape | None]:
    if op < 0:
        return (family, table.name_of(int(work.links.work[places[0]])), ""), None
    name, detail = table.name_of(op), table.detail_of(op)
    shape = shape_of(family, name, detail)
    return (family, name, label(shape) if shape else str(parsed(detail.dims) or "")), shape


def label(shape: Shape) -> str:
    """Shape as people read it."""
    if isinstance(shape, MatrixShape):
        batch = f"{shape.batch} x " if shape.batch > 1 else ""
        return f"{batch}[{shape.m}, {shape.k}] x [{shape.k}, {shape.n}] {shape.dtype.removeprefix('c10::')}"
    if isinstance(shape, AttentionShape):
        mask = {True: "causal", False: "full", None: "mask unknown"}[shape.causal]
        heads = f"{shape.heads}/{shape.kv_heads} heads of {shape.query_dim}"
        return f"{shape.batch} x {shape.queries} to {shape.keys}, {heads}, {mask} {shape.dtype.removeprefix('c10::')}"
    return f"{shape.bytes:,} B {shape.dtype.removeprefix('c10::')}"


def _op(
    key: tuple[str, str, str],
    shape: Shape | None,
    groups: Sequence[tuple[int, list[int]]],
    works: Sequence[Work],
    spec: GpuSpec | None,
    own: tuple[CalibrationSpec, ...],
) -> TracedOp:
    times = []
    for number, places in groups:
        work = works[number]
        times.append(int(work.table.duration[work.links.work[places]].sum()) / SECOND)
    work, places = works[groups[0][0]], groups[0][1]
    longest = max(places, key=lambda place: int(work.table.duration[work.links.work[place]]))
    kernel = work.table.name_of(int(work.links.work[longest]))
    flop, moved = (None, None) if shape is None else amounts(shape)
    price = None if shape is None or spec is None else price_of(shape, spec.name, own)
    return TracedOp(
        *key,
        count=len(times),
        median_s=float(np.median(times)),
        least_s=min(times),
        total_s=sum(times),
        flop=flop,
        bytes=moved,
        roofline_s=None if shape is None or spec is None else roofline(shape, spec),
        predicted_s=price.time_s if price else None,
        low_s=price.low_s if price else None,
        high_s=price.high_s if price else None,
        evidence=price.evidence if price else None,
        kernel=kernel,
        remarks=remarks(kernel, spec) if key[0] == "gemm" else (),
    )


def model_work(shape: Shape) -> Gemm | AttentionCore | Traffic | None:
    """Shape as the model prices it; None for types and masks that it does not."""
    if isinstance(shape, MovedShape):
        return Traffic(float(shape.bytes), plain=True)
    rate = rate_of(shape.dtype)
    if rate is None:
        return None
    if isinstance(shape, MatrixShape):
        width = 1.0 if rate == "fp8" else 2.0
        sizes = (float(shape.m), float(shape.n), float(shape.k))
        return Gemm(*sizes, groups=float(shape.batch), rate=rate, operand_bytes=width)
    if shape.causal is None or (shape.queries != shape.keys and shape.causal):
        return None
    columns = shape.keys / 2 if shape.causal else float(shape.keys)
    counts = (float(shape.batch), float(shape.heads), float(shape.kv_heads), float(shape.queries), float(columns))
    return AttentionCore(*counts, shape.query_dim, shape.value_dim, shape.backward, balanced=not shape.causal)


def amounts(shape: Shape) -> tuple[float | None, float | None]:
    """Work and traffic of a shape. [FLOP, B]"""
    if isinstance(shape, MovedShape):
        return None, float(shape.bytes)
    work = model_work(shape)
    return shape.flop, float(work.hbm_bytes) if work is not None else None


def roofline(shape: Shape, spec: GpuSpec) -> float | None:
    """Time at the rates of the datasheet. [s]"""
    flop, moved = amounts(shape)
    rate = None if isinstance(shape, MovedShape) else rate_of(shape.dtype)
    peak = spec.peak_flop_rate.get(rate) if rate else None
    if flop is not None and peak is None:
        return None
    busy = flop / peak.value if flop is not None and peak is not None else 0.0
    return max(busy, (moved or 0.0) / spec.memory_bandwidth.value)


@lru_cache(maxsize=16384)
def price_of(shape: Shape, gpu: str, own: tuple[CalibrationSpec, ...] = ()) -> KernelPrice | None:
    """Calibrated price of a shape on a GPU; None where the model has none."""
    work = model_work(shape)
    if work is None:
        return None
    if isinstance(work, Gemm):
        family, unlike = "gemm", ("a batch of products",) if work.groups != 1 else ()
    elif isinstance(work, AttentionCore):
        family, unlike = "attention", ()
    else:
        family, unlike = "memory", ()
    try:
        return kernel_price(
            Asked(family, work, gpu, unlike=unlike, form="padded" if family == "gemm" else "grouped", own=own)
        )
    except SpecError:  # the GPU has no rate for the type
        return None


def remarks(kernel: str, spec: GpuSpec | None) -> tuple[str, ...]:
    """What makes the kernel of a matrix product slow: operands that do not lie evenly, instructions of an older GPU."""
    found = []
    align = ALIGN.search(kernel)
    if align and int(align[1]) < 8:
        found.append(f"leading dimension is odd: loads of {align[1]} values")
    old = OLD.search(kernel)
    generation = (int(old[1] or old[3] or 0) or GENERATIONS[old[2]]) if old else 0
    if spec is not None and generation and generation < _capability(spec):
        found.append(f"kernel for sm{generation}")
    if re.search(r"gemv|dot_kernel|splitKreduce_kernel", kernel):
        found.append("matrix-vector product")
    return tuple(found)


def _capability(spec: GpuSpec) -> int:
    """Compute capability of a GPU by its rates: FP8 came with 9.0, FP4 with 10.0."""
    return 100 if "fp4" in spec.peak_flop_rate else 90 if "fp8" in spec.peak_flop_rate else 80
