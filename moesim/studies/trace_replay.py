"""Replays of a measured timeline: what it would take with other durations, dependencies kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import Collector, SpecError, did_you_mean
from moesim.studies.trace_graph import trace_graph
from moesim.studies.trace_tasks import HOST, TraceGraph
from moesim.timeline.run import Run, critical_path, run
from moesim.traces.intervals import union
from moesim.traces.ranks import Across
from moesim.traces.summary import SECOND, Work

Floats = NDArray[np.float64]
GROUPS = ("all", "communication", "kernels", "copies", "host")
"""What can be scaled beside a class: all work of GPUs, what moves data between them, kernels, copies, the host."""


@dataclass(frozen=True)
class DeviceReplay:
    """A GPU, measured and replayed. Times in s.

    Attributes
    ----------
    measured_window_s, identity_window_s, window_s
        From the first to the last work: measured, replayed with the measured durations, and with the changed ones.
    measured_busy_s, replayed_busy_s
        With some work, measured and in the changed replay.
    busy_s
        With some work if nothing moved: each moment stretched by the slowest of what runs in it. With communication at
        nothing this leaves exactly the measured busy time less the exposed communication.
    """

    file: str
    rank: int | None
    device: int
    measured_window_s: float
    identity_window_s: float
    window_s: float
    measured_busy_s: float
    replayed_busy_s: float
    busy_s: float


@dataclass(frozen=True)
class Replay:
    """A replay of one or several ranks.

    Attributes
    ----------
    devices
        Each GPU.
    critical_s
        Critical path of the changed replay by class; ``host`` is calls and what the host does between them, ``latency``
        launches and gaps of streams. Adds up to the longest window of all GPUs and their hosts. [s]
    measured_critical_s
        The same with the measured durations.
    factors
        Mean factor on the time of each class.
    notes
        What was assumed.
    """

    devices: tuple[DeviceReplay, ...]
    critical_s: Mapping[str, float]
    measured_critical_s: Mapping[str, float]
    factors: Mapping[str, float]
    notes: tuple[str, ...] = ()

    @property
    def measured_s(self) -> float:
        """Longest measured window. [s]"""
        return max(one.measured_window_s for one in self.devices)

    @property
    def replayed_s(self) -> float:
        """Longest replayed window. [s]"""
        return max(one.window_s for one in self.devices)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "measured_s": self.measured_s,
            "replayed_s": self.replayed_s,
            "speedup": self.measured_s / self.replayed_s if self.replayed_s else None,
            **asdict(self),
        }


@dataclass(frozen=True, eq=False)
class Factors:
    """What durations are multiplied with: each piece of work of each file, and the host."""

    works: tuple[Floats, ...]
    host: float = 1.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Replayed:
    """Graph of a trace, ready to be run with any durations."""

    works: tuple[Work, ...]
    graph: TraceGraph
    identity: Run = field(repr=False)

    @classmethod
    def of(cls, works: Sequence[Work], beside: Across | None = None) -> Replayed:
        """Build the graph of one or several ranks and run it with the measured durations."""
        if not any(len(work.links.work) for work in works):
            where = ", ".join(work.table.source for work in works)
            raise SpecError.single(where, "", "no GPU did any work: there is nothing to replay", "")
        graph = trace_graph(works, beside)
        ones = Factors(tuple(np.ones(len(work.links.work)) for work in works))
        return cls(tuple(works), graph, _run(graph, ones))

    def replay(self, factors: Factors) -> Replay:
        """Run the graph with changed durations."""
        changed = _run(self.graph, factors)
        devices = [
            self._device(owner, work, device, changed, factors)
            for owner, work in enumerate(self.works)
            for device in work.table.devices
        ]
        return Replay(
            tuple(devices),
            self._critical(changed),
            self._critical(self.identity),
            _mean_factors(self.works, factors),
            factors.notes,
        )

    def _device(self, owner: int, work: Work, device: int, changed: Run, factors: Factors) -> DeviceReplay:
        table, chosen = work.table, work.on(device)
        places = work.links.work[chosen]
        start, end = table.start[places], table.end[places]
        measured = union(start, end)
        now, before = (self._spans(owner, chosen, one, by) for one, by in ((changed, factors), (self.identity, None)))
        return DeviceReplay(
            file=table.source.rsplit("/", 1)[-1],
            rank=table.rank,
            device=device,
            measured_window_s=int(end.max() - start.min()) / SECOND,
            identity_window_s=float(before[1].max() - before[0].min()),
            window_s=float(now[1].max() - now[0].min()),
            measured_busy_s=int((measured[1] - measured[0]).sum()) / SECOND,
            replayed_busy_s=_covered(*now),
            busy_s=in_place_busy(start, end, factors.works[owner][chosen]) / SECOND,
        )

    def _spans(self, owner: int, chosen: NDArray[np.bool_], one: Run, factors: Factors | None) -> tuple[Floats, Floats]:
        """Start and end of the work of a GPU in a run. [s]"""
        task = self.graph.order
        mine = (self.graph.owner[task] == owner) & (self.graph.place[task] >= 0)
        mine[mine] = chosen[self.graph.place[task[mine]]]
        tail = self.graph.tail_ns[task[mine]] / SECOND
        if factors is not None:
            tail = tail * factors.works[owner][self.graph.place[task[mine]]]
        row = np.empty(len(task), dtype=np.int64)
        row[task] = np.arange(len(task))
        return one.start[row[self.graph.first[task[mine]]]], one.end[mine] + tail

    def _critical(self, one: Run) -> dict[str, float]:
        """Critical path by class. [s]"""
        path, task = critical_path(one), self.graph.order
        found: dict[str, float] = {}
        for place, number in enumerate(path):
            owner, piece = int(self.graph.owner[task[number]]), int(self.graph.place[task[number]])
            name = str(self.works[owner].family[piece]) if piece >= 0 else "host"
            found[name] = found.get(name, 0.0) + float(one.end[number] - one.start[number])
            if place + 1 < len(path):
                after = path[place + 1]
                gap = float(one.start[after] - one.end[number])
                told = "host" if self._host_gap(after, number) else "latency"
                found[told] = found.get(told, 0.0) + gap
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _host_gap(self, task: int, pred: int) -> bool:
        columns = np.flatnonzero(self.graph.graph.preds[task] == pred)
        rows = self.graph.graph.delay_row[task, columns]
        return bool((self.graph.delay_scales[rows] == HOST).any())


def _run(graph: TraceGraph, factors: Factors) -> Run:
    """Run of a graph with factors on its durations."""
    by_task = np.full(len(graph.start_ns), factors.host)
    for owner, values in enumerate(factors.works):
        mine = (graph.owner == owner) & (graph.place >= 0)
        by_task[mine] = values[graph.place[mine]]
    delays = np.where(graph.delay_scales == HOST, factors.host, 1.0) * graph.delay_ns
    tails = graph.delay_tail >= 0
    delays[tails] += (graph.tail_ns * by_task)[graph.delay_tail[tails]]
    return run(graph.graph, graph.lane_ns * by_task / SECOND, delays / SECOND)


def _covered(start: Floats, end: Floats) -> float:
    """Time that at least one interval covers. [s]"""
    nano = [np.rint(one * SECOND).astype(np.int64) for one in (start, end)]
    low, high = union(nano[0], np.maximum(nano[0], nano[1]))
    return int((high - low).sum()) / SECOND


def in_place_busy(start: NDArray[np.int64], end: NDArray[np.int64], factors: Floats) -> float:
    """Busy time with each moment stretched by the slowest of what runs in it. [ns]

    Examples
    --------
    >>> in_place_busy(np.array([0, 5]), np.array([10, 15]), np.array([1.0, 0.5]))
    12.5
    """
    total, before = 0.0, 0
    for factor in sorted(set(factors.tolist()), reverse=True):
        low, high = union(start[factors >= factor], end[factors >= factor])
        length = int((high - low).sum())
        total += factor * (length - before)
        before = length
    return total


def scaled(works: Sequence[Work], scales: Mapping[str, str]) -> Factors:
    """Factors from options such as ``gemm=0.5`` or ``communication=0``.

    Raises
    ------
    SpecError
        With a line for each that is no class of the trace, or no factor.
    """
    problems, host = Collector(), 1.0
    found = [np.ones(len(work.links.work)) for work in works]
    families = sorted({str(name) for work in works for name in work.family})
    for name, text in scales.items():
        try:
            factor = float(text)
        except ValueError:
            factor = -1.0
        if not 0 <= factor < 1e6:
            problems.add(f"--scale {name}", "", f"'{text}' is no factor", "write for example --scale gemm=0.5")
            continue
        if name == "host":
            host = factor
        elif name not in GROUPS and name not in families:
            known = did_you_mean(name, [*GROUPS, *families])
            problems.add(f"--scale {name}", "", "the trace has no such class", known)
        for values, work in zip(found, works, strict=True):
            values[members(work, name)] *= factor
    problems.raise_if_any()
    return Factors(tuple(found), host)


def members(work: Work, name: str) -> NDArray[np.bool_]:
    """Work of a class or group."""
    if name == "all":
        return np.ones(len(work.family), dtype=bool)
    if name == "communication":
        return work.communication
    if name == "kernels":
        return work.is_kernel
    return ~work.is_kernel if name == "copies" else np.asarray(work.family == name, dtype=bool)


def _mean_factors(works: Sequence[Work], factors: Factors) -> dict[str, float]:
    """Mean factor of each class, weighted by time."""
    totals: dict[str, list[float]] = {}
    for work, values in zip(works, factors.works, strict=True):
        duration = work.table.duration[work.links.work].astype(np.float64)
        for name in sorted(set(work.family.tolist())):
            mine = work.family == name
            one = totals.setdefault(str(name), [0.0, 0.0])
            one[0] += float(duration[mine].sum())
            one[1] += float((duration * values)[mine].sum())
    return {name: after / before for name, (before, after) in totals.items() if before}
