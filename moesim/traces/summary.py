"""What a timeline says in numbers: how long each GPU worked, on what, and the communication that nothing hid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.traces.event_table import COPY, KERNEL, SET, EventTable, Ints, Mask
from moesim.traces.intervals import joined, less, span, union
from moesim.traces.kernel_rule import COPY_CLASS, OTHER, SET_CLASS, Classes, classes
from moesim.traces.linking import Links, links
from moesim.traces.matrix_shapes import MatrixShape, matrix_shape

SECOND = 1e9
"""Nanoseconds in one. [ns]"""


@dataclass(frozen=True, eq=False)
class Work:
    """GPU work of a file with its classes and links.

    Attributes
    ----------
    table, links
        Events, and the launch and operator of each piece of work.
    family
        Class of each piece of work. (len(links.work),)
    communication
        Whether it moves data between GPUs.
    """

    table: EventTable
    links: Links
    family: NDArray[Any]
    communication: Mask

    @property
    def linked(self) -> Mask:
        """Work whose launch is in the file."""
        return self.links.launch >= 0

    def on(self, device: int) -> Mask:
        """Work of a GPU."""
        return np.asarray(self.table.device[self.links.work] == device)

    @property
    def is_kernel(self) -> Mask:
        """Work that is a kernel, not a copy or set."""
        return np.asarray(self.table.category[self.links.work] == KERNEL)


def work_of(table: EventTable, rules: Classes | None = None) -> Work:
    """Classes and links of all GPU work."""
    rules = rules or classes()
    found = links(table)
    used = np.unique(table.name[found.work])
    named: dict[int, tuple[str, bool]] = {}
    for number in used.tolist():
        rule = rules.rule_of(table.names[number])
        named[number] = (rule.family, rule.communication) if rule else (OTHER, False)
    names, kinds = table.name[found.work].tolist(), table.category[found.work].tolist()
    fixed = {COPY: COPY_CLASS, SET: SET_CLASS}
    family = np.array(
        [fixed.get(kind) or named[name][0] for name, kind in zip(names, kinds, strict=True)], dtype=object
    )
    moves = [kind == KERNEL and named[name][1] for name, kind in zip(names, kinds, strict=True)]
    return Work(table, found, family, np.array(moves, dtype=bool))


@dataclass(frozen=True)
class ClassTime:
    """Kernels of a class: how many, and the sum of their times. [s]"""

    count: int
    time_s: float


@dataclass(frozen=True)
class DeviceSummary:
    """Times of one GPU, unions of intervals. [s]

    Attributes
    ----------
    window_s, busy_s, idle_s
        From the first to the last work; with some work; without.
    compute_s, communication_s, memory_s
        Kernels that are no communication; communication; copies and sets.
    exposed_s, exposed_strict_s
        Communication while no kernel computes; and no copy or set runs either.
    overlap_s, overlap
        Communication and compute together; its share of communication, None without any. [s, -]
    kernels, communication_kernels, gemm_shapes
        Counts; shapes are distinct ones of matrix products whose operator tells them.
    stream_overlaps
        Work that starts before the work before it on its stream has ended: sums of durations exceed busy time.
    """

    device: int
    start_ns: int
    window_s: float
    busy_s: float
    idle_s: float
    compute_s: float
    communication_s: float
    memory_s: float
    exposed_s: float
    exposed_strict_s: float
    overlap_s: float
    overlap: float | None
    kernels: int
    communication_kernels: int
    gemm_shapes: int
    stream_overlaps: int
    streams: tuple[int, ...]
    classes: Mapping[str, ClassTime] = field(default_factory=dict)
    unknown: Mapping[str, ClassTime] = field(default_factory=dict)
    gemms: tuple[GemmTime, ...] = ()


@dataclass(frozen=True)
class GemmTime:
    """Matrix products of one shape: operators, their kernels, and the time of the kernels of one operator. [s]"""

    shape: MatrixShape
    count: int
    median_s: float
    least_s: float
    total_s: float
    kernels_per_op: int
    kernel: str


def device_summary(work: Work, device: int, *, linked_only: bool = False) -> DeviceSummary:
    """Times of a GPU; `linked_only` leaves out what was launched before the file begins."""
    table, chosen = work.table, work.on(device)
    if linked_only:
        chosen = chosen & work.linked
    places = work.links.work[chosen]
    kernel, moves = work.is_kernel[chosen], work.communication[chosen]
    start, end = table.start[places], table.end[places]

    def some(mask: Mask) -> tuple[Ints, Ints]:
        return union(start[mask], end[mask])

    busy, compute, communication, memory = (some(mask) for mask in (kernel | True, kernel & ~moves, moves, ~kernel))
    window = int(end.max() - start.min()) if len(start) else 0
    exposed = less(communication, compute)
    overlap = span(communication) - exposed
    gemms = gemm_times(work, chosen)
    return DeviceSummary(
        device=device,
        start_ns=int(start.min()) if len(start) else 0,
        window_s=window / SECOND,
        busy_s=span(busy) / SECOND,
        idle_s=(window - span(busy)) / SECOND,
        compute_s=span(compute) / SECOND,
        communication_s=span(communication) / SECOND,
        memory_s=span(memory) / SECOND,
        exposed_s=exposed / SECOND,
        exposed_strict_s=less(communication, joined(compute, memory)) / SECOND,
        overlap_s=overlap / SECOND,
        overlap=overlap / span(communication) if span(communication) else None,
        kernels=int(kernel.sum()),
        communication_kernels=int(moves.sum()),
        gemm_shapes=len(gemms),
        stream_overlaps=_stream_overlaps(table.stream[places], start, end),
        streams=tuple(int(one) for one in np.unique(table.stream[places])),
        classes=_class_times(work.family[chosen], table.duration[places]),
        unknown=_unknown(work, chosen),
        gemms=gemms,
    )


def _stream_overlaps(stream: Ints, start: Ints, end: Ints) -> int:
    """Work of one GPU that starts before what came before it on its stream has ended. [-]"""
    order = np.lexsort((start, stream))
    stream, start, end = stream[order], start[order], end[order]
    return int(((stream[1:] == stream[:-1]) & (start[1:] < end[:-1])).sum())


def _class_times(family: NDArray[Any], duration: Ints) -> dict[str, ClassTime]:
    """Count and time of each class, the longest first."""
    found = {
        str(name): ClassTime(int((family == name).sum()), int(duration[family == name].sum()) / SECOND)
        for name in sorted(set(family.tolist()))
    }
    return dict(sorted(found.items(), key=lambda one: -one[1].time_s))


def _unknown(work: Work, chosen: Mask) -> dict[str, ClassTime]:
    """Kernels that no rule knows, the longest first."""
    places = work.links.work[chosen & (work.family == OTHER)]
    names = np.array([work.table.names[one] for one in work.table.name[places].tolist()], dtype=object)
    return _class_times(names, work.table.duration[places])


def gemm_times(work: Work, chosen: Mask) -> tuple[GemmTime, ...]:
    """Matrix products by shape, the longest in sum first: times of kernels, summed over those of one operator."""
    table = work.table
    gemm = np.flatnonzero(chosen & (work.family == "gemm") & (work.links.op >= 0))
    by_op: dict[int, list[int]] = {}
    for place in gemm.tolist():
        by_op.setdefault(int(work.links.op[place]), []).append(int(work.links.work[place]))
    found: dict[MatrixShape, list[list[int]]] = {}
    for op, kernels in by_op.items():
        shape = matrix_shape(table.name_of(op), table.detail_of(op))
        if shape is not None:
            found.setdefault(shape, []).append(kernels)
    rows = []
    for shape, groups in found.items():
        times = [int(table.duration[kernels].sum()) for kernels in groups]
        longest = max(groups[0], key=lambda kernel: int(table.duration[kernel]))
        rows.append(
            GemmTime(
                shape,
                len(groups),
                float(np.median(times)) / SECOND,
                min(times) / SECOND,
                sum(times) / SECOND,
                max(map(len, groups)),
                table.name_of(longest),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.total_s))


def summaries(table: EventTable, rules: Classes | None = None, *, linked_only: bool = False) -> list[DeviceSummary]:
    """Times of every GPU of a file."""
    work = work_of(table, rules)
    return [device_summary(work, device, linked_only=linked_only) for device in table.devices]
