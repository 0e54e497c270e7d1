"""An explanation as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.intervals import listed
from moesim.report.estimate import gibibytes, power_line, seconds
from moesim.result import Constant, Estimate
from moesim.studies.explain import Explanation, OpRow


def tables(explanation: Explanation, strongest: int = 20) -> RenderableType:
    """Operations by the time they take in the step, memory by class and phase, constants by elasticity."""
    estimate = explanation.estimate
    return Group(
        Text(f"{estimate.name}: {seconds(estimate.step_time_s)}", style="bold"),
        *(Text(line) for line in [power_line(estimate)] if line),
        _ops(explanation),
        _memory(explanation),
        _interval(estimate),
        *_outside(estimate),
        _constants(estimate.constants[:strongest]),
    )


def _ops(explanation: Explanation) -> Table:
    table = Table(title=f"operations on pipeline rank {explanation.rank}, longest first", title_justify="left")
    for name in ("where", "operation", "lane", "bound"):
        table.add_column(name, no_wrap=True)
    for name in ("FLOP", "HBM", "message", "time", "calls", "in the step"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(explanation.ops, key=lambda op: -op.seconds * op.calls):
        if row.seconds:
            table.add_row(row.where, row.name, row.lane, row.bound, *_numbers(row))
    table.caption = "FLOP, bytes and time of one call; what runs side by side counts twice in the last column"
    table.caption_justify = "left"
    return table


def _numbers(row: OpRow) -> tuple[str, ...]:
    flop = f"{row.flop / 1e9:,.1f} G" if row.flop else ""
    sizes = (f"{value / 1e6:,.1f} MB" if value else "" for value in (row.hbm_bytes, row.message_bytes))
    return (flop, *sizes, seconds(row.seconds), f"{row.calls:,}", seconds(row.seconds * row.calls))


def _memory(explanation: Explanation) -> Table:
    rank = explanation.estimate.memory.peak_stage
    phases = explanation.memory[rank]
    table = Table(title=f"memory of pipeline rank {rank} by class and phase, GiB", title_justify="left")
    table.add_column("class")
    for phase in phases:
        table.add_column(phase, justify="right")
    for name in next(iter(phases.values())):
        if any(classes[name] for classes in phases.values()):
            table.add_row(name, *(gibibytes(classes[name]) for classes in phases.values()))
    table.add_row("sum", *(gibibytes(sum(classes.values())) for classes in phases.values()), style="bold")
    return table


def _interval(estimate: Estimate) -> Table:
    found = estimate.interval
    table = Table(title=f"90 % interval: {seconds(found.low_s)} to {seconds(found.high_s)}", title_justify="left")
    table.add_column("prices, or a constant that none of their calibrations covers", no_wrap=True)
    table.add_column("standard error", justify="right")
    table.add_column("share", justify="right")
    table.add_column("evidence")
    for one in listed(found):
        table.add_row(one.name, f"{one.log_error:.2%}", f"{one.share:.1%}", one.evidence)
    table.add_row("step", f"{found.log_error:.2%}", "100.0%", estimate.evidence, style="bold")
    notes = [f"holds {found.holds}; not {found.lacks}"]
    if found.uncalibrated:
        notes.append(f"not measured on this machine: {', '.join(found.uncalibrated)}")
    table.caption = "\n".join(notes)
    table.caption_justify = "left"
    return table


def _outside(estimate: Estimate) -> list[Table]:
    if not estimate.interval.outside:
        return []
    table = Table(title="prices outside of what was measured", title_justify="left")
    for name in ("family", "operation", "quantity"):
        table.add_column(name, no_wrap=True)
    for name in ("value", "measured"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in estimate.interval.outside:
        value = one.value if isinstance(one.value, str) else f"{one.value:.4g}"
        span = "no such kind" if one.low is None else f"{one.low:.4g} to {one.high:.4g}"
        table.add_row(one.family, one.operation, one.quantity, value, span)
    return [table]


def _constants(constants: tuple[Constant, ...]) -> Table:
    table = Table(title="constants by their elasticity on the step", title_justify="left")
    table.add_column("constant", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("elasticity", justify="right")
    table.add_column("kind")
    table.add_column("source")
    for constant in constants:
        table.add_row(
            constant.setting or constant.path,
            f"{constant.value:.4g}",
            f"{constant.elasticity:+.3f}",
            constant.kind,
            constant.source,
        )
    table.caption = "elasticity: per cent of step time for one per cent of the constant; values in SI units"
    table.caption_justify = "left"
    return table
