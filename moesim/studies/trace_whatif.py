"""What durations of a trace become on another machine or in another precision: ratios of the model's prices.

A measured duration is multiplied with the price of the same work under the change over its price before, so what the
model gets wrong about a kernel cancels. Work whose shape the trace does not tell takes the middle factor of its class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from moesim.base.errors import Collector, SpecError, did_you_mean
from moesim.base.units import parse_quantity
from moesim.cost.attention import attention_time
from moesim.cost.gemm import gemm_time
from moesim.cost.machine import Gpu
from moesim.cost.memory_bound import traffic_time
from moesim.studies.trace_machine import Machine, collective_price
from moesim.studies.trace_ops import model_work
from moesim.studies.trace_replay import Factors, Floats
from moesim.traces.collectives import collectives
from moesim.traces.op_work import Shape, shape_of
from moesim.traces.summary import Work
from moesim.workload.ops import AttentionCore, Gemm

CONSTANTS = {
    "memory_bandwidth": ("memory_bandwidth",),
    "nvlink_bandwidth": ("nvlink_bandwidth", "nvls_bandwidth", "p2p_bandwidth", "alltoall_bandwidth"),
    "nic_bandwidth": ("nic_bandwidth",),
    "gemm_rate": (),
}
"""Constants that can be changed, and what of the links changes with them."""
BANDWIDTH_BOUND = ("elementwise", "normalization", "softmax", "reduction", "index", "optimizer", "routing")


def changed_machine(machine: Machine, changes: Mapping[str, str]) -> Machine:
    """Machine with other constants: ``2x``, or a quantity.

    Raises
    ------
    SpecError
        With a line for each that is no constant, or no value.
    """
    problems, gpu, links = Collector(), machine.gpu, machine.links
    for name, text in changes.items():
        if name not in CONSTANTS:
            problems.add(f"--set {name}", "", "is no constant of the replay", did_you_mean(name, CONSTANTS))
            continue
        now = gpu.memory_bandwidth if name == "memory_bandwidth" else getattr(links, name, None)
        try:
            factor = _factor(text, None if now is None else float(now))
        except ValueError as error:
            problems.add(f"--set {name}", "", str(error), "write for example 2x, or 900 GB/s")
            continue
        if name == "memory_bandwidth":
            gpu = replace(gpu, memory_bandwidth=gpu.memory_bandwidth * factor)
        elif name == "gemm_rate":
            gpu = replace(gpu, rates={rate: value * factor for rate, value in gpu.rates.items()})
        elif links is not None:
            links = replace(links, **{one: getattr(links, one) * factor for one in CONSTANTS[name]})
        else:
            problems.add(f"--set {name}", "", "no node of this GPU is known, so its links are not")
    problems.raise_if_any()
    return Machine(gpu, links, machine.per_node)


def _factor(text: str, now: float | None) -> float:
    try:
        factor = float(text[:-1]) if text.endswith("x") else None
    except ValueError:
        factor = None
    if factor is None:
        if now is None:
            raise ValueError(f"'{text}' is no factor")
        factor = parse_quantity(text, "bandwidth") / now
    if not 0 < factor < 1e6:
        raise ValueError(f"'{text}' is no positive factor")
    return factor


def repriced(works: Sequence[Work], before: Machine, after: Machine, precision: str | None = None) -> Factors:
    """Factors of all work from one machine to another, matrix products in another precision where told."""
    if precision is not None and precision not in after.gpu.rates:
        known = f"known: {', '.join(after.gpu.rates)}"
        raise SpecError.single("--precision", "", f"the GPU has no rate for '{precision}'", known)
    notes: list[str] = []
    found = [np.full(len(work.links.work), np.nan) for work in works]
    for work, values in zip(works, found, strict=True):
        _kernels(work, values, before, after, precision)
        _collectives(work, values, before, after)
        values[~work.is_kernel] = 1.0
    families = sorted({str(name) for work in works for name in work.family})
    for family in families:
        _filled(works, found, family, before, after, precision, notes)
    return Factors(tuple(np.where(np.isnan(values), 1.0, values) for values in found), notes=tuple(notes))


def _kernels(work: Work, values: Floats, before: Machine, after: Machine, precision: str | None) -> None:
    """Factors of kernels whose shape is told."""
    ratios: dict[Shape, float | None] = {}
    for place in np.flatnonzero(work.links.op >= 0).tolist():
        family, op = str(work.family[place]), int(work.links.op[place])
        shape = shape_of(family, work.table.name_of(op), work.table.detail_of(op))
        if shape is None:
            continue
        if shape not in ratios:
            ratios[shape] = _ratio(shape, before.gpu, after.gpu, precision)
        if (ratio := ratios[shape]) is not None:
            values[place] = ratio


def _ratio(shape: Shape, before: Gpu, after: Gpu, precision: str | None) -> float | None:
    """Price after over price before; None where the model has none."""
    work = model_work(shape)
    if isinstance(work, Gemm):
        later = work if precision is None else replace(work, rate=precision, operand_bytes=_width(precision))
        if work.rate not in before.rates or later.rate not in after.rates:
            return None
        return float(gemm_time(later, after) / gemm_time(work, before))
    if isinstance(work, AttentionCore):
        return float(attention_time(work, after) / attention_time(work, before))
    if work is None:
        return None
    moved = float(work.hbm_bytes)
    return float(traffic_time(moved, after) / traffic_time(moved, before))


def _width(precision: str) -> float:
    from moesim.calibrate.dense import OPERAND_BYTES

    return OPERAND_BYTES.get(precision, 2.0)


def _collectives(work: Work, values: Floats, before: Machine, after: Machine) -> None:
    """Factors of collectives whose size and group are told."""
    places = {int(event): place for place, event in enumerate(work.links.work.tolist())}
    for one in collectives(work):
        now, then = collective_price(one, before), collective_price(one, after)
        if now and then:
            values[places[one.event]] = then / now


def _filled(
    works: Sequence[Work],
    found: Sequence[Floats],
    family: str,
    before: Machine,
    after: Machine,
    precision: str | None,
    notes: list[str],
) -> None:
    """Fill the factors of a class that no shape tells with the middle one of those that are told."""
    masks = [(work.family == family) & work.is_kernel for work in works]
    known = [values[mask & ~np.isnan(values)] for values, mask in zip(found, masks, strict=True)]
    weights = [
        work.table.duration[work.links.work[mask & ~np.isnan(values)]]
        for work, values, mask in zip(works, found, masks, strict=True)
    ]
    told, time = np.concatenate(known), np.concatenate(weights)
    lacking = sum(int((mask & np.isnan(values)).sum()) for values, mask in zip(found, masks, strict=True))
    if not lacking:
        return
    if len(told):
        factor = float(np.average(told, weights=np.maximum(time, 1)))
        words = "the middle factor of its kind"
    else:
        factor, words = _without_shapes(family, before, after, precision)
    if abs(factor - 1) > 1e-9:
        notes.append(f"{family}: {lacking:,} kernels of unknown shape take {words}, x {factor:.3f}")
    elif family not in BANDWIDTH_BOUND and before.gpu is not after.gpu:
        notes.append(f"{family}: {lacking:,} kernels are not priced and keep their measured time")
    for values, mask in zip(found, masks, strict=True):
        values[mask & np.isnan(values)] = factor


def _without_shapes(family: str, before: Machine, after: Machine, precision: str | None) -> tuple[float, str]:
    """Factor of a class of which no shape is told: the ratio of the rates that bound it."""
    if family in BANDWIDTH_BOUND:
        return float(before.gpu.memory_bandwidth / after.gpu.memory_bandwidth), "the ratio of memory bandwidths"
    if family in ("gemm", "attention"):
        rate = precision if precision is not None and family == "gemm" else "bf16"
        return float(before.gpu.rates["bf16"] / after.gpu.rates[rate]), "the ratio of the rates of matrix products"
    if family == "nccl" and before.links is not None and after.links is not None:
        return float(before.links.nvlink_bandwidth / after.links.nvlink_bandwidth), "the ratio of NVLink bandwidths"
    return 1.0, "its measured time"


def together(first: Factors, second: Factors) -> Factors:
    """Both changes at once."""
    works = tuple(one * other for one, other in zip(first.works, second.works, strict=True))
    return Factors(works, first.host * second.host, (*first.notes, *second.notes))
