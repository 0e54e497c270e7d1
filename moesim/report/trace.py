"""Traces as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import seconds
from moesim.studies.trace_summary import DeviceReport, TraceReport
from moesim.traces.ranks import Across

MOST_UNKNOWN, MOST_MATCHES, MOST_HOSTS = 6, 12, 8
"""Rows of kernels that no rule knows, of collectives, and lines on hosts, that are shown."""


def share(part: float, whole: float) -> str:
    """Part of a whole in percent."""
    return f"{part / whole:.1%}" if whole else "-"


def report_tables(found: TraceReport) -> RenderableType:
    """The whole answer: GPUs, classes, what no rule knows, steps, ranks, repairs."""
    parts: list[RenderableType] = [_devices(found), _classes(found)] if found.files else []
    parts += [_host(one) for one in found.devices[:MOST_HOSTS]]
    parts += [table for one in found.devices if (table := _steps(one)) is not None][:1]
    if found.across is not None:
        parts.append(across_tables(found.across))
    if found.records:
        parts.append(_records(found))
    parts += _notes(found)
    return Group(*parts)


def _devices(found: TraceReport) -> RenderableType:
    title = "times of each GPU" + (" (work whose launch is in the file)" if found.linked_only else "")
    table = Table(title=title, title_justify="left")
    table.add_column("file", overflow="fold", max_width=16)
    table.add_column("rank")
    table.add_column("GPU", overflow="fold", max_width=12)
    for name in (
        "window",
        "busy",
        "compute",
        "communi-\ncation",
        "exposed",
        "copies",
        "idle",
        "waits for\nhost",
        "kernels",
    ):
        table.add_column(name, justify="right")
    for one in found.devices:
        times = one.times
        rank = "" if one.rank is None else str(one.rank)
        table.add_row(
            one.file,
            rank,
            f"{times.device} {one.gpu}".strip(),
            seconds(times.window_s),
            f"{seconds(times.busy_s)}\n{share(times.busy_s, times.window_s)}",
            seconds(times.compute_s),
            seconds(times.communication_s) + ("" if times.overlap is None else f"\n{times.overlap:.1%} hidden"),
            seconds(times.exposed_s),
            seconds(times.memory_s),
            seconds(times.idle_s),
            f"{one.host.host_bound:.1%}",
            f"{times.kernels:,}" + (f"\n{times.communication_kernels:,} move" if times.communication_kernels else ""),
        )
    if not found.devices:
        return Text("no GPU did any work in " + ", ".join(one.file for one in found.files))
    return table


def _classes(found: TraceReport) -> RenderableType:
    table = Table(title="classes of work, sums of kernel times", title_justify="left")
    table.add_column("class")
    shown = found.devices[:8]
    for one in shown:
        table.add_column(f"rank {one.rank}" if one.rank is not None else f"GPU {one.times.device}", justify="right")
    totals = [sum(part.time_s for part in one.times.classes.values()) for one in shown]
    names = sorted(
        {name for one in shown for name in one.times.classes},
        key=lambda name: -sum(one.times.classes[name].time_s for one in shown if name in one.times.classes),
    )
    for name in names:
        cells = []
        for one, total in zip(shown, totals, strict=True):
            part = one.times.classes.get(name)
            told = f"{seconds(part.time_s)} {share(part.time_s, total)}" if part else ""
            cells.append(f"{told} ({part.count:,})" if part else "")
        table.add_row(name, *cells)
    return table if names else Text("")


def _host(one: DeviceReport) -> RenderableType:
    """Gaps of a GPU by what it waits for, and calls that wait for the GPU."""
    host = one.host
    who = f"rank {one.rank}" if one.rank is not None else f"GPU {one.times.device}"
    delay = "" if host.launch_delay_s is None else f"; from launch to start {seconds(host.launch_delay_s)} (median)"
    return Text(
        f"{who}: {host.gaps:,} gaps of {seconds(host.gap_s)}: {seconds(host.host_bound_s)} before the next launch, "
        f"{seconds(host.launch_s)} behind it, {seconds(host.unknown_s)} before work of unknown launch{delay}; "
        f"{host.syncs:,} calls that wait for the GPU take {seconds(host.sync_s)}"
    )


def _steps(one: DeviceReport) -> RenderableType | None:
    if not one.steps:
        return None
    title = f"steps of {one.file}, GPU work by its launch (the profiler may cut the last one)"
    table = Table(title=title, title_justify="left")
    for name in ("step", "host", "GPU busy", "first to last work", "kernels and copies"):
        table.add_column(name, justify="right")
    for step in one.steps:
        table.add_row(str(step.number), *map(seconds, (step.host_s, step.busy_s, step.span_s)), f"{step.kernels:,}")
    return table


def across_tables(found: Across) -> RenderableType:
    """Ranks beside each other, and the collectives in which most waiting is."""
    ranks = Table(title="ranks: waiting for the last one apart from moving data", title_justify="left")
    for name in ("rank", "waiting", "transfer", "arrived last", "clock ahead"):
        ranks.add_column(name, justify="right")
    for one in found.ranks:
        clock = seconds(one.clock_offset_s)
        ranks.add_row(str(one.rank), seconds(one.waiting_s), seconds(one.transfer_s), str(one.arrived_last), clock)
    table = Table(title="collectives on several ranks, the longest waiting first", title_justify="left")
    for name in ("collective", "ranks", "size", "starts apart", "ends apart", "transfer", "last"):
        table.add_column(name, justify="right")
    for match in sorted(found.matches, key=lambda one: -one.start_spread_s)[:MOST_MATCHES]:
        size = "" if match.size is None else f"{match.size:,.0f} B"
        times = map(seconds, (match.start_spread_s, match.end_spread_s, match.transfer_s))
        table.add_row(f"{match.operation} {match.index}", str(len(match.members)), size, *times, str(match.last))
    lines = [Text(f"not matched {count:,}: {reason}") for reason, count in sorted(found.rejected.items())]
    partial = sum(not match.complete for match in found.matches)
    if partial:
        lines.append(Text(f"of {partial:,} not all ranks are here: their waiting is a lower bound"))
    return Group(ranks, table, *lines) if found.matches else Group(*lines)


def _records(found: TraceReport) -> RenderableType:
    table = Table(title="files that hold no timeline", title_justify="left")
    for name in ("file", "format", "what they hold"):
        table.add_column(name, overflow="fold")
    for one in found.records:
        table.add_row(
            Path(one.source).name, one.format, ", ".join(f"{count:,} {what}" for what, count in one.counts.items())
        )
    return table


def _notes(found: TraceReport) -> list[RenderableType]:
    """Kernels that no rule knows, and repairs."""
    notes: list[RenderableType] = []
    unknown: dict[str, float] = {}
    for one in found.devices:
        for name, part in one.times.unknown.items():
            unknown[name] = unknown.get(name, 0.0) + part.time_s
    if unknown:
        notes.append(Text("kernels that no rule knows (own rules: --rules FILE):"))
        longest = sorted(unknown.items(), key=lambda item: -item[1])[:MOST_UNKNOWN]
        notes += [Text(f"  {seconds(time)}  {name[:110]}") for name, time in longest]
    for file in found.files:
        notes += [Text(line, style="yellow") for line in repairs(file.file, file.repaired, file.first)]
    if found.passed_over:
        notes.append(Text(f"passed over, no traces: {', '.join(found.passed_over)}"))
    for held in found.records:
        notes += [Text(line, style="yellow") for line in repairs(Path(held.source).name, held.repaired, held.first)]
    return notes


def repairs(file: str, repaired: Mapping[str, int], first: Mapping[str, int]) -> list[str]:
    """A line for each defect of a file."""
    places = {what: f", first at byte {first[what]:,}" for what in first}
    return [f"{file}: {what} ({count:,}{places.get(what, '')})" for what, count in sorted(repaired.items())]
