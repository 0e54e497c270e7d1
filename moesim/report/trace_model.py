"""Traces beside the model, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.units import format_quantity
from moesim.report.compare import change
from moesim.report.estimate import seconds
from moesim.studies.trace_match import Alone, TraceMatch
from moesim.studies.trace_ops import TracedOp, TracedOps
from moesim.studies.trace_replay import Replay

MOST_OPS, MOST_COLLECTIVES = 40, 20
GIGA = 1e9


def ops_table(found: TracedOps) -> RenderableType:
    """Operators, the longest in sum first."""
    beside = f", beside {found.gpu}" if found.gpu else ": no known GPU is named, so nothing is compared (--gpu)"
    table = Table(title=f"operators by their time in sum{beside}", title_justify="left")
    table.add_column("class")
    table.add_column("operator", overflow="fold", max_width=30)
    table.add_column("shape", overflow="fold", max_width=36)
    for name in ("count", "sum", "median", "rate", "of roofline", "model", "error"):
        table.add_column(name, justify="right")
    table.add_column("remarks", overflow="fold")
    for one in found.ops[:MOST_OPS]:
        table.add_row(one.family, one.op[:60], one.shape[:72], *_numbers(one), "; ".join(one.remarks))
    lines = []
    if len(found.ops) > MOST_OPS:
        lines.append(Text(f"{len(found.ops) - MOST_OPS:,} more kinds: --json has all"))
    errors = found.errors("gemm", GIGA)
    if errors:
        told = (
            f"{np.median(np.abs(errors)):.1%} median error of the prices of {len(errors)} matrix products above 1 GFLOP"
        )
        lines.append(Text(told))
    parts: list[RenderableType] = [table, *lines]
    if found.collectives:
        parts.append(_collectives(found))
    return Group(*parts)


def _numbers(one: TracedOp) -> tuple[str, ...]:
    rate = ""
    if one.flop:
        rate = format_quantity(one.flop / one.median_s, "flop_rate", 3)
    elif one.bytes:
        rate = format_quantity(one.bytes / one.median_s / 1e9, "bytes", 4).removesuffix(" B") + " GB/s"
    share = f"{one.roofline_s / one.median_s:.0%}" if one.roofline_s else ""
    price = "" if one.predicted_s is None else seconds(one.predicted_s)
    error = "" if one.error is None else f"{one.error:+.1%}"
    return (f"{one.count:,}", seconds(one.total_s), seconds(one.median_s), rate, share, price, error)


def _collectives(found: TracedOps) -> RenderableType:
    title = "collectives, times with waiting: with one rank the bandwidth is a lower bound"
    table = Table(title=title, title_justify="left")
    for name in ("operation", "ranks", "size", "time", "bus bandwidth", "model", "told by"):
        table.add_column(name, justify="right")
    for priced in sorted(found.collectives, key=lambda one: -one.told.time_s)[:MOST_COLLECTIVES]:
        one, price = priced.told, priced.predicted_s
        size = "" if one.size is None else format_quantity(one.size, "bytes")
        bus = "" if one.bus_bandwidth is None else f"{one.bus_bandwidth / GIGA:.2f} GB/s"
        table.add_row(
            one.operation,
            str(one.group_size or ""),
            size,
            seconds(one.time_s),
            bus,
            seconds(price or 0.0) if price else "",
            one.told_by,
        )
    return table


def replay_tables(found: Replay) -> RenderableType:
    """Windows of every GPU, and the critical path before and after."""
    change = found.replayed_s / found.measured_s - 1
    head = Text(f"measured {seconds(found.measured_s)}, replayed {seconds(found.replayed_s)} ({change:+.1%})", "bold")
    table = Table(title="GPUs", title_justify="left")
    for name in ("file", "GPU"):
        table.add_column(name, overflow="fold", max_width=30)
    for name in ("measured window", "same durations", "replayed", "measured busy", "busy", "busy, moved"):
        table.add_column(name, justify="right")
    for one in found.devices:
        times = (
            *(one.measured_window_s, one.identity_window_s, one.window_s),
            *(one.measured_busy_s, one.busy_s, one.replayed_busy_s),
        )
        table.add_row(one.file, str(one.device), *map(seconds, times))
    path = Table(title="critical path, launches and gaps as latency", title_justify="left")
    path.add_column("class")
    for name in ("measured", "replayed", "factor on durations"):
        path.add_column(name, justify="right")
    for name in dict.fromkeys([*found.measured_critical_s, *found.critical_s]):
        parts = (found.measured_critical_s.get(name, 0.0), found.critical_s.get(name, 0.0))
        factor = found.factors.get(name)
        path.add_row(name, *map(seconds, parts), "" if factor is None else f"{factor:.3f}")
    return Group(head, table, path, *(Text(note, style="dim") for note in found.notes))


MOST_MATCHED = 25


def match_tables(found: TraceMatch) -> RenderableType:
    """Kinds of work, operations on both sides, and what either side has alone."""
    error = found.predicted_step_s / found.measured_step_s - 1
    step = "the whole trace as one step" if found.step is None else f"step {found.step}"
    head = Text(
        f"{found.scenario}: predicted {seconds(found.predicted_step_s)}, "
        f"measured {seconds(found.measured_step_s)} ({error:+.1%}), {step}"
    )
    kinds = Table(title="kinds of work, sums of kernel times", title_justify="left")
    for name in ("kind", "predicted", "measured", "measured spends more"):
        kinds.add_column(name, justify="right")
    for kind in found.differences:
        times = map(seconds, (kind.predicted_s, kind.measured_s))
        kinds.add_row(kind.category, *times, change(kind.difference_s))
    both = Table(title="operations on both sides, the largest difference in the step first", title_justify="left")
    both.add_column("operation", overflow="fold", max_width=30)
    both.add_column("shape", overflow="fold", max_width=34)
    for name in ("predicted", "measured", "error", "calls", "measured calls", "measured spends more"):
        both.add_column(name, justify="right")
    for one in found.matched[:MOST_MATCHED]:
        counts = (f"{one.predicted_count:,.0f}", f"{one.measured_count:,.0f}")
        times = map(seconds, (one.predicted_s, one.measured_s))
        both.add_row(one.name, one.shape, *times, f"{one.error:+.1%}", *counts, change(one.difference_s))
    waits = (
        f"predicted: bubble {seconds(found.predicted_bubble_s)}, host {seconds(found.predicted_host_s)}; "
        f"measured: idle {seconds(found.measured_idle_s)}, "
        f"of which waiting for the host {seconds(found.measured_host_s)}; "
        f"exposed communication {seconds(found.measured_exposed_s)}"
    )
    alone = (_alone("only in the estimate", found.only_predicted), _alone("only in the trace", found.only_measured))
    return Group(head, kinds, Text(waits), both, *alone)


def _alone(title: str, rows: Sequence[Alone]) -> RenderableType:
    table = Table(title=title, title_justify="left")
    table.add_column("operation", overflow="fold", max_width=40)
    table.add_column("kind")
    table.add_column("shape", overflow="fold", max_width=40)
    for name in ("calls", "in the step"):
        table.add_column(name, justify="right")
    for one in rows[:MOST_MATCHED]:
        table.add_row(one.name[:80], one.category, one.shape[:80], f"{one.count:,.0f}", seconds(one.time_s))
    return table if rows else Text(f"{title}: nothing")
