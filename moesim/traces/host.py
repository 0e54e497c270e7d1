"""What the host does to a timeline: gaps in which a GPU waits for a launch, calls that wait for the GPU, and steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from moesim.traces.event_table import ANNOTATION, LAUNCH, Ints
from moesim.traces.intervals import covered, union
from moesim.traces.summary import SECOND, Work

BLOCKING = re.compile(
    r"^(?:cuda|hip|cu)(?:Device|Stream|Event|Ctx)Synchronize|^(?:cuda|hip)Memcpy(?:_v\w+)?$|^cuMemcpy[A-Z]\w*_v2$"
)
"""Runtime calls that return only when the GPU is done."""
STEP = re.compile(r"^ProfilerStep#?\s*(\d+)$")


@dataclass(frozen=True)
class HostTime:
    """Host and GPU. Times in s.

    Attributes
    ----------
    gaps, gap_s
        Times in which the GPU does nothing, and their sum (the idle time).
    host_bound_s
        Part of them in which the work that ends the gap was not launched yet.
    launch_s
        Part between that launch and the start of the work: latency of the launch, or waiting for another stream.
    unknown_s
        Part that ends in work whose launch is not in the file.
    host_bound
        Share of the window in which the GPU waits for the host. [-]
    launch_delay_s
        Median time from launch to start; None without launches.
    syncs, sync_s
        Calls that wait for the GPU, and how long the host spends in them.
    """

    gaps: int
    gap_s: float
    host_bound_s: float
    launch_s: float
    unknown_s: float
    host_bound: float
    launch_delay_s: float | None
    syncs: int
    sync_s: float


def host_time(work: Work, device: int) -> HostTime:
    """Gaps of a GPU by what it waits for, and syncs of the host."""
    table, chosen = work.table, work.on(device)
    places, launch = work.links.work[chosen], work.links.launch[chosen]
    start, end = table.start[places], table.end[places]
    if not len(start):
        return HostTime(0, 0.0, 0.0, 0.0, 0.0, 0.0, None, 0, 0.0)
    low, high = union(start, end)
    order = np.argsort(start, kind="stable")
    first = order[np.searchsorted(start[order], low)]  # work that ends each gap
    opened, closed = high[:-1], low[1:]
    next_launch = launch[first[1:]]
    known = next_launch >= 0
    launched = np.where(known, table.start[next_launch], opened)
    waiting = np.clip(np.minimum(launched, closed) - opened, 0, None)
    gap = closed - opened
    linked = launch >= 0
    delays = start[linked] - table.start[launch[linked]]
    blocking = np.array([BLOCKING.search(name) is not None for name in table.names], dtype=bool)
    calls = table.of(LAUNCH) & (blocking[table.name] if len(blocking) else False)
    window = int(end.max() - start.min())
    return HostTime(
        gaps=len(gap),
        gap_s=int(gap.sum()) / SECOND,
        host_bound_s=int(waiting[known].sum()) / SECOND,
        launch_s=int((gap - waiting)[known].sum()) / SECOND,
        unknown_s=int(gap[~known].sum()) / SECOND,
        host_bound=int(waiting[known].sum()) / window if window else 0.0,
        launch_delay_s=float(np.median(delays)) / SECOND if len(delays) else None,
        syncs=int(calls.sum()),
        sync_s=covered(table.start[calls], table.end[calls]) / SECOND,
    )


@dataclass(frozen=True)
class Step:
    """A step of the profiler: its time on the host, and the GPU work that was launched in it. Times in s.

    ``span_s`` is from the first to the last of that work.
    """

    number: int
    host_s: float
    busy_s: float
    span_s: float
    kernels: int


def steps(work: Work, device: int) -> list[Step]:
    """Steps of a file with the work of a GPU, assigned by launch: kernels run later than the host's step."""
    table = work.table
    chosen = work.on(device) & work.linked
    places, launched = work.links.work[chosen], table.start[work.links.launch[chosen]]
    found: dict[int, Any] = {}
    for event in np.flatnonzero(table.of(ANNOTATION)).tolist():
        name = STEP.match(table.name_of(event))
        if name:
            found[int(name[1])] = event
    rows = []
    for number, event in sorted(found.items()):
        start, end = int(table.start[event]), int(table.start[event] + table.duration[event])
        inside = places[(launched >= start) & (launched < end)]
        rows.append(_step(number, end - start, table.start[inside], table.end[inside]))
    return rows


def _step(number: int, host: int, start: Ints, end: Ints) -> Step:
    window = int(end.max() - start.min()) if len(start) else 0
    return Step(number, host / SECOND, covered(start, end) / SECOND, window / SECOND, len(start))
