r"""The dependency graph behind a measured timeline.

Work of a GPU waits for the work before it on its stream, for its launch, for events of other streams, and, where
several ranks are given, for the last rank of its collective. Calls of a host thread follow each other with the time
that the host needs in between; a call that waits for the GPU ends behind its work. An edge :math:`j \to i` has a delay
:math:`d_{ij}`:

.. math:: s_i = \max_j (e_j + d_{ij})

The edge that bound in the measurement keeps its measured delay; the others get the usual one of their kind, or less
where the measurement had less. So the graph with the measured durations gives back the measured timeline.

References
----------
Zhu et al., dPRO: A Generic Performance Diagnosis and Optimization Toolkit, MLSys 2022; Liang et al., Lumos, MLSys 2025
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moesim.studies.trace_tasks import HOST, Tasks, TraceGraph, graph_of
from moesim.traces.event_table import LAUNCH, SYNC, EventTable, Ints
from moesim.traces.host import BLOCKING
from moesim.traces.ranks import Across
from moesim.traces.summary import Work

EVENT_WAIT = 1_000
"""Delay from the end of work to that of another stream that waits for its event. [ns]"""
HAND_OVER = 50_000
"""Gap of a thread from which it is taken to wait for another one that launches meanwhile. [ns]"""
CLOSE, LONGER = 30_000, 3_000
"""For files without records of syncs: work that starts at most that long behind the end of other work, and that much
later than its stream and launch explain, waits for it (ROCm takes up to 20 us between them). [ns]"""
OWN_SYNC = 3_000
"""Time of a call that waits for the GPU beside the waiting. [ns]"""


LONGEST_LAUNCH, LONGEST_GAP = 20_000, 3_000
"""Bounds of the usual delays from a launch, and between work of a stream: more is waiting for something else. [ns]"""


@dataclass(frozen=True)
class Usual:
    """Usual delays of a file. [ns]"""

    launch: int
    stream: int
    sync: int


def trace_graph(works: Sequence[Work], beside: Across | None = None) -> TraceGraph:
    """Graph of one or several files of the same run."""
    tasks = Tasks()
    matched = _members(beside)
    arrivals: dict[int, list[int]] = {}
    transfers: dict[int, list[int]] = {}
    for owner, work in enumerate(_on_one_clock(works, beside)):
        _File(tasks, owner, work, matched, arrivals, transfers).add()
    for number, arrived in arrivals.items():
        for transfer in transfers[number]:
            for arrival in arrived:
                tasks.wait(transfer, arrival, 0)
    return graph_of(tasks)


def _members(beside: Across | None) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Number of the match, and how long its last rank was waited for [ns], of a kernel: by file, event and stream."""
    found: dict[tuple[int, int, int], tuple[int, int]] = {}
    for number, match in enumerate(beside.matches if beside is not None else ()):
        for rank, one in match.members.items():
            owner = beside.owners[rank][0] if beside is not None else 0
            found[owner, one.event, one.stream] = (number, match.begin_ns - one.start_ns)
    return found


def _on_one_clock(works: Sequence[Work], beside: Across | None) -> list[Work]:
    """Files with the offsets of their clocks taken out."""
    ahead = {beside.owners[rank][0]: moved for rank, moved in beside.moved.items()} if beside is not None else {}
    return [
        replace(work, table=replace(work.table, start=work.table.start - ahead[owner])) if ahead.get(owner) else work
        for owner, work in enumerate(works)
    ]


class _File:
    """Tasks and edges of one file."""

    def __init__(
        self,
        tasks: Tasks,
        owner: int,
        work: Work,
        matched: Mapping[tuple[int, int, int], tuple[int, int]],
        arrivals: dict[int, list[int]],
        transfers: dict[int, list[int]],
    ) -> None:
        self.tasks, self.owner, self.work, self.table = tasks, owner, work, work.table
        self.matched, self.arrivals, self.transfers = matched, arrivals, transfers
        places = work.links.work
        self.start, self.end = self.table.start[places], self.table.end[places]
        self.launched = np.where(work.linked, self.table.start[work.links.launch], self.start)
        line = self.table.device[places].astype(np.int64) << 40 | (self.table.stream[places] & 0xFFFFFFFFFF)
        order = np.lexsort((self.end, self.start, line))
        self.streams = {
            (int(self.table.device[places[group[0]]]), int(self.table.stream[places[group[0]]])): group
            for group in np.split(order, np.flatnonzero(np.diff(line[order])) + 1)
            if len(group)
        }
        self.usual = self._usual()
        self.synced = _sync_records(self.table)
        self.first: dict[int, int] = {}  # task that begins each piece of work
        self.last: dict[int, int] = {}  # and the one that ends it
        self.calls: dict[int, int] = {}  # task of each launch

    def add(self) -> None:
        """Add all tasks and edges."""
        for line, group in self.streams.items():
            self._stream(line, group)
        self._host()
        told = self._event_waits()
        if not told:
            self._guessed_waits()

    def _usual(self) -> Usual:
        """Usual delays: of launches into an idle stream, between work that was queued."""
        idle, queued = [], []
        for group in self.streams.values():
            before, after = group[:-1], group[1:]
            gap = self.start[after] - self.end[before]
            linked = self.work.linked[after]
            waited = self.launched[after] > self.end[before]
            idle.append((self.start[after] - self.launched[after])[linked & waited])
            queued.append(gap[linked & ~waited & (gap >= 0)])
        launch, stream = (np.concatenate([np.empty(0), *one]) for one in (idle, queued))
        latency = int(np.median(launch)) if len(launch) else 5_000
        between = int(np.quantile(stream, 0.25)) if len(stream) else EVENT_WAIT
        return Usual(min(latency, LONGEST_LAUNCH), min(between, LONGEST_GAP), OWN_SYNC)

    def _stream(self, line: tuple[int, int], group: Ints) -> None:
        """Work of a stream, in order."""
        lane, previous = (self.owner, "gpu", *line), -1
        for place in group.tolist():
            start, end = int(self.start[place]), int(self.end[place])
            event = int(self.work.links.work[place])
            number, waited = self.matched.get((self.owner, event, line[1]), (-1, 0))
            if number >= 0 and start + waited <= end:
                first, begin = self.tasks.task(start, start, lane), start + waited  # it has arrived, and waits
                last = self.tasks.task(begin, end, lane, self.owner, place, first)
                self.arrivals.setdefault(number, []).append(first)
                self.transfers.setdefault(number, []).append(last)
            else:
                first = last = self.tasks.task(start, end, lane, self.owner, place)
            if previous >= 0:
                self.tasks.wait(first, previous, self.usual.stream, whole=False)
            previous, self.first[place], self.last[place] = last, first, last

    def _host(self) -> None:
        """Launches and calls that wait, thread by thread."""
        table, links = self.table, self.work.links
        works: dict[int, list[int]] = {}
        for place in np.flatnonzero(self.work.linked).tolist():
            works.setdefault(int(links.launch[place]), []).append(place)
        names = np.array([BLOCKING.search(name) is not None for name in table.names], dtype=bool)
        blocking = set(np.flatnonzero(table.of(LAUNCH) & (names[table.name] if len(names) else False)).tolist())
        every = np.array(sorted(blocking | set(works)), dtype=np.int64)
        every = every[np.argsort(table.start[every], kind="stable")]
        ends: dict[tuple[int, int], tuple[int, int]] = {}  # last task of each thread and its end
        for call in every.tolist():
            thread = (int(table.process[call]), int(table.thread[call]))
            task, behind = self._call(call, thread, call in blocking, works.get(call, []))
            own = ends.get(thread)
            if own is not None:
                idle = int(table.start[call]) - own[1] > HAND_OVER
                other = max((one for key, one in ends.items() if key != thread), key=lambda one: one[1], default=None)
                if idle and other is not None and other[1] > own[1]:
                    self.tasks.wait(task, other[0], 0, HOST, whole=False)
                    self.tasks.wait(task, own[0], 0, HOST, whole=False)
                else:
                    self.tasks.wait(task, own[0], 0, HOST, whole=False)
            elif ends and max(one[1] for one in ends.values()) <= int(table.start[call]):
                self.tasks.wait(task, max(ends.values(), key=lambda one: one[1])[0], 0, HOST, whole=False)
            ends[thread] = (behind, int(table.end[call]))

    def _call(self, call: int, thread: tuple[int, int], blocking: bool, works: list[int]) -> tuple[int, int]:
        """A call: its first and last task."""
        start, end = int(self.table.start[call]), int(self.table.end[call])
        waited = self._waited(call, start, end) if blocking else []
        waited += [place for place in works if int(self.end[place]) <= end]  # a copy that is waited for
        lane = (self.owner, "host", *thread)
        if not waited:
            task = behind = self.tasks.task(start, end, lane)
        else:
            task = self.tasks.task(start, min(end, start + OWN_SYNC), lane)
            behind = self.tasks.task(end, end, lane)
            self.tasks.wait(behind, task, end - start if int(max(self.end[waited])) <= start else 0)
            for place in waited:
                self.tasks.wait(behind, self.last[place], self.usual.sync)
        length = self.tasks.end[task] - start
        for place in works:
            self.tasks.wait(self.first[place], task, self.usual.launch - length)
        return task, behind

    def _waited(self, call: int, start: int, end: int) -> list[int]:
        """Work that a call waits for: the last of each stream that was launched before it and ended with it."""
        told = self.synced.get(_call_of(self.table, call))
        found = []
        for line, group in self.streams.items():
            if told is not None and told[0] >= 0 and told[0] != line[1]:
                continue
            until = told[1] if told is not None and told[1] >= 0 else start
            place = self._last_launched(group, until)
            if place is not None and int(self.end[place]) <= end + OWN_SYNC:
                found.append(place)
        return found

    def _last_launched(self, group: Ints, until: int) -> int | None:
        """Last work of a stream that was launched before a time."""
        before = bisect_left(self.launched[group], until)
        return int(group[before - 1]) if before else None

    def _event_waits(self) -> bool:
        """Streams that wait for events of others, where the file has records of it."""
        records = [one for one in _stream_waits(self.table) if one[1] >= 0]
        for stream, other, recorded, called in records:
            for line, group in self.streams.items():
                if line[1] != stream:
                    continue
                place = bisect_left(self.launched[group], called)
                source = self.streams.get((line[0], other))
                last = None if source is None else self._last_launched(source, recorded)
                if place < len(group) and last is not None:
                    self.tasks.wait(self.first[int(group[place])], self.last[last], EVENT_WAIT)
        return bool(records)

    def _guessed_waits(self) -> None:
        """Work that starts just behind work of another stream, later than its own stream and launch explain."""
        for line, group in self.streams.items():
            others = [other for key, other in self.streams.items() if key != line and key[0] == line[0]]
            if not others:
                continue
            merged = np.concatenate(others)
            merged = merged[np.argsort(self.end[merged], kind="stable")]
            ends = self.end[merged]
            before = np.append(np.iinfo(np.int64).min // 2, self.end[group[:-1]])
            launched = np.where(self.work.linked[group], self.launched[group], before) + self.usual.launch
            explained = np.maximum(before + self.usual.stream, launched)
            at = np.searchsorted(ends, self.start[group], side="right") - 1
            late = (self.start[group] - explained > LONGER) & (at >= 0)
            behind = self.start[group] - ends[np.maximum(at, 0)]
            late &= (behind < CLOSE) & (ends[np.maximum(at, 0)] >= explained)
            for place, other in zip(group[late].tolist(), merged[at[late]].tolist(), strict=True):
                self.tasks.wait(self.first[place], self.last[other], EVENT_WAIT)


Call = tuple[int, int]
"""Process and correlation of a call: correlations are unique in a process only."""


def _sync_records(table: EventTable) -> dict[Call, tuple[int, int]]:
    """Stream, and time of the recorded event, that host syncs wait for, by their call; -1 where all is waited for."""
    times = _launch_times(table)
    found: dict[Call, tuple[int, int]] = {}
    for event in np.flatnonzero(table.of(SYNC)).tolist():
        detail, call = table.detail_of(event), _call_of(table, event)
        if detail.sync in ("Stream Sync", "Stream Synchronize"):
            found[call] = (int(table.stream[event]), -1)
        elif detail.sync in ("Event Sync", "Event Synchronize"):
            found[call] = (detail.sync_stream, times.get((call[0], detail.sync_event), -1))
        elif "Context" in detail.sync:
            found[call] = (-1, -1)
    return found


def _stream_waits(table: EventTable) -> list[tuple[int, int, int, int]]:
    """Waits of a stream for an event of another: both streams, when it was recorded, when the wait was called. [ns]"""
    times = _launch_times(table)
    found = []
    for event in np.flatnonzero(table.of(SYNC)).tolist():
        detail, call = table.detail_of(event), _call_of(table, event)
        recorded = times.get((call[0], detail.sync_event))
        if detail.sync == "Stream Wait Event" and recorded is not None:
            called = times.get(call, int(table.start[event]))
            found.append((int(table.stream[event]), detail.sync_stream, recorded, called))
    return found


def _call_of(table: EventTable, event: int) -> Call:
    process = int(table.process[event]) if table.format == "nsys" else 0
    return process, int(table.correlation[event])


def _launch_times(table: EventTable) -> dict[Call, int]:
    """Start of each call. [ns]"""
    calls = np.flatnonzero(table.of(LAUNCH) & (table.correlation >= 0)).tolist()
    return {_call_of(table, call): int(table.start[call]) for call in calls}
