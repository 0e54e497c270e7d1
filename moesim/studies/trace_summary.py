"""What traces say: times of every GPU, what waits for the host, steps, and ranks beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moesim.traces.archive import trace_files
from moesim.traces.collectives import Collective, collectives
from moesim.traces.event_table import EventTable
from moesim.traces.host import HostTime, Step, host_time, steps
from moesim.traces.kernel_rule import Classes
from moesim.traces.opening import read_any, read_timeline
from moesim.traces.ranks import Across, across
from moesim.traces.records import Records
from moesim.traces.summary import DeviceSummary, Work, device_summary, work_of

Opened = Callable[[Path], Callable[[int], None]]


@dataclass(frozen=True)
class DeviceReport:
    """One GPU of one file."""

    file: str
    rank: int | None
    gpu: str
    times: DeviceSummary
    host: HostTime
    steps: tuple[Step, ...]
    collectives: tuple[Collective, ...]
    repaired: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        times = asdict(self.times)
        gemms = [{**asdict(one.shape), **_without(asdict(one), "shape")} for one in self.times.gemms]
        return {
            "file": self.file,
            "rank": self.rank,
            "gpu": self.gpu,
            **_without(times, "gemms", "start_ns"),
            "start_ns": self.times.start_ns,
            "host": asdict(self.host),
            "steps": [asdict(one) for one in self.steps],
            "gemms": gemms,
            "collectives": [_collective(one) for one in self.collectives],
            "repaired": dict(self.repaired),
        }


@dataclass(frozen=True)
class FileReport:
    """One file: its format, what was wrong with it, and the ranks of its process groups."""

    file: str
    format: str
    rank: int | None
    world_size: int | None
    events: int
    repaired: Mapping[str, int]
    first: Mapping[str, int]
    ignored: Mapping[str, int]
    groups: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class TraceReport:
    """Timelines, GPUs, files that hold records, and ranks beside each other where there are several."""

    files: tuple[FileReport, ...]
    devices: tuple[DeviceReport, ...]
    records: tuple[Records, ...]
    passed_over: tuple[str, ...]
    across: Across | None
    linked_only: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "linked_only": self.linked_only,
            "files": [asdict(one) for one in self.files],
            "devices": [one.to_dict() for one in self.devices],
            "records": [_records(one) for one in self.records],
            "passed_over": list(self.passed_over),
            "across": None if self.across is None else across_dict(self.across),
        }


def trace_report(
    paths: Sequence[Path], rules: Classes | None = None, *, linked_only: bool = False, opened: Opened | None = None
) -> TraceReport:
    """Read traces and sum them up.

    Parameters
    ----------
    paths
        Files, folders or archives; one rank a file, or several GPUs in one.
    rules
        Rules that tell the class of a kernel.
    linked_only
        Leave out work that was launched before a file begins.
    opened
        Called with each file; gives what is told of the bytes read.
    """
    with trace_files(paths) as listed:
        read = [read_any(file, _told(opened, file)) for file in listed.files]
        found = [work_of(one, rules) for one in read if isinstance(one, EventTable)]
        files = tuple(_file(work.table) for work in found)
        devices = tuple(
            _device(work, device, linked_only=linked_only) for work in found for device in work.table.devices
        )
        beside = across(found) if len(devices) > 1 else None
        records = tuple(one for one in read if isinstance(one, Records))
    return TraceReport(files, devices, records, listed.passed_over, beside, linked_only)


def _told(opened: Opened | None, file: Path) -> Callable[[int], None]:
    return opened(file) if opened else lambda _taken: None


def _records(one: Records) -> dict[str, Any]:
    told = {"counts": dict(one.counts), "repaired": dict(one.repaired)}
    return {"file": Path(one.source).name, "format": one.format, **told, "records": list(one.records)}


@contextmanager
def works(paths: Sequence[Path], rules: Classes | None = None, opened: Opened | None = None) -> Iterator[list[Work]]:
    """GPU work of all files that paths name."""
    with trace_files(paths) as files:
        yield [work_of(read_timeline(file, _told(opened, file)), rules) for file in files.files]


def _file(table: EventTable) -> FileReport:
    told = (dict(table.repaired), dict(table.first), dict(table.ignored), dict(table.groups))
    return FileReport(Path(table.source).name, table.format, table.rank, table.world_size, len(table), *told)


def _device(work: Work, device: int, *, linked_only: bool) -> DeviceReport:
    table = work.table
    names = sorted({name for name in table.gpus if name})
    gpu = names[0] if len(names) == 1 else table.gpus[device] if 0 <= device < len(table.gpus) else ""
    return DeviceReport(
        file=Path(table.source).name,
        rank=table.rank,
        gpu=gpu,
        times=device_summary(work, device, linked_only=linked_only),
        host=host_time(work, device),
        steps=tuple(steps(work, device)),
        collectives=tuple(one for one in collectives(work) if one.device == device),
        repaired=dict(table.repaired),
    )


def _collective(one: Collective) -> dict[str, Any]:
    rates = {"algorithm_bandwidth": one.algorithm_bandwidth, "bus_bandwidth": one.bus_bandwidth}
    told = _without(asdict(one), "event", "device", "size")
    return {**told, "time_s": one.time_s, "size_bytes": one.size, **rates}


def across_dict(found: Across) -> dict[str, Any]:
    """Ranks beside each other as plain values in SI units."""
    matches = [
        {
            "operation": match.operation,
            "index": match.index,
            "ranks": sorted(match.members),
            "size_bytes": match.size,
            "start_spread_s": match.start_spread_s,
            "end_spread_s": match.end_spread_s,
            "transfer_s": match.transfer_s,
            "last": match.last,
            "complete": match.complete,
            "waiting_s": {str(rank): match.waiting_s(rank) for rank in sorted(match.members)},
            "transfer_by_rank_s": {str(rank): match.moved_s(rank) for rank in sorted(match.members)},
        }
        for match in found.matches
    ]
    return {"matches": matches, "ranks": [asdict(one) for one in found.ranks], "rejected": dict(found.rejected)}


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
