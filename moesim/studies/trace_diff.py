"""Two traces beside each other: what became slower, what is new, what is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moesim.studies.trace_ops import TracedOp, traced_ops
from moesim.traces.host import host_time
from moesim.traces.summary import DeviceSummary, Work, device_summary

FIGURES = (
    *("window_s", "busy_s", "idle_s", "compute_s", "communication_s", "memory_s", "exposed_s", "exposed_strict_s"),
    *("kernels", "communication_kernels", "gemm_shapes"),
)
"""Figures of a GPU that are compared."""


@dataclass(frozen=True)
class Pair:
    """A figure in both traces."""

    name: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        """Second less first."""
        return self.second - self.first


@dataclass(frozen=True)
class OpPair:
    """Operators of a kind and shape in both traces; times in s, nothing in a trace counts as 0."""

    family: str
    op: str
    shape: str
    first_count: int
    second_count: int
    first_s: float
    second_s: float
    first_median_s: float
    second_median_s: float

    @property
    def difference_s(self) -> float:
        """Second less first, all of them. [s]"""
        return self.second_s - self.first_s

    @property
    def state(self) -> str:
        """``new``, ``gone`` or ``both``."""
        return "new" if not self.first_count else "gone" if not self.second_count else "both"


@dataclass(frozen=True)
class DeviceDiff:
    """A GPU in both traces."""

    first_device: int
    second_device: int
    figures: tuple[Pair, ...]
    classes: tuple[Pair, ...]


@dataclass(frozen=True)
class TraceDiff:
    """Two traces: GPUs in order, and operators of all of them by how much they differ."""

    first: str
    second: str
    devices: tuple[DeviceDiff, ...]
    ops: tuple[OpPair, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        devices = [
            {
                "first_device": one.first_device,
                "second_device": one.second_device,
                **{part: _pairs(getattr(one, part)) for part in ("figures", "classes")},
            }
            for one in self.devices
        ]
        ops = [{**asdict(one), "difference_s": one.difference_s, "state": one.state} for one in self.ops]
        return {"first": self.first, "second": self.second, "devices": devices, "ops": ops}


def _pairs(listed: Sequence[Pair]) -> dict[str, Any]:
    return {one.name: {"first": one.first, "second": one.second, "difference": one.difference} for one in listed}


def trace_diff(first: Work, second: Work) -> TraceDiff:
    """Compare two traces; GPUs are paired in their order."""
    pairs = zip(first.table.devices, second.table.devices, strict=False)
    devices = tuple(_device(first, one, second, other) for one, other in pairs)
    ops = sorted(_ops(first, second), key=lambda one: -abs(one.difference_s))
    return TraceDiff(Path(first.table.source).name, Path(second.table.source).name, devices, tuple(ops))


def _device(first: Work, one: int, second: Work, other: int) -> DeviceDiff:
    before, after = device_summary(first, one), device_summary(second, other)
    figures = [Pair(name, float(getattr(before, name)), float(getattr(after, name))) for name in FIGURES]
    waits = [host_time(work, device).host_bound_s for work, device in ((first, one), (second, other))]
    figures.append(Pair("host_bound_s", waits[0], waits[1]))
    return DeviceDiff(one, other, tuple(figures), _classes(before, after))


def _classes(before: DeviceSummary, after: DeviceSummary) -> tuple[Pair, ...]:
    def time(one: DeviceSummary, name: str) -> float:
        return one.classes[name].time_s if name in one.classes else 0.0

    names = dict.fromkeys([*before.classes, *after.classes])
    rows = [Pair(name, time(before, name), time(after, name)) for name in names]
    return tuple(sorted(rows, key=lambda one: -abs(one.difference)))


def _ops(first: Work, second: Work) -> list[OpPair]:
    before, after = (_by_kind(traced_ops([work]).ops) for work in (first, second))
    rows = []
    for key in dict.fromkeys([*before, *after]):
        one, other = before.get(key), after.get(key)
        counts = (one.count if one else 0, other.count if other else 0)
        times = (one.total_s if one else 0.0, other.total_s if other else 0.0)
        medians = (one.median_s if one else 0.0, other.median_s if other else 0.0)
        rows.append(OpPair(*key, *counts, *times, *medians))
    return rows


def _by_kind(ops: Sequence[TracedOp]) -> Mapping[tuple[str, str, str], TracedOp]:
    return {(one.family, one.op, one.shape): one for one in ops}
