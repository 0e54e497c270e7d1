"""Tables and the scatter plot of a validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import seconds
from moesim.studies.targets import Line
from moesim.studies.validate import Row, worst


def share(value: float | None, sign: bool = False) -> str:
    """Share as people read it; nothing where there is none."""
    return "" if value is None else f"{value:+.1%}" if sign else f"{value:.1%}"


def validation_tables(
    rows: Sequence[Row], groups: Sequence[Mapping[str, Any]], refused: Mapping[str, int], lines: Sequence[Line]
) -> RenderableType:
    """Errors by group, the worst rows, what was refused, and the targets."""
    estimated = sum(row.status == "estimated" for row in rows)
    told = Text(f"{len(rows)} rows, {estimated} estimated; refused: " + (listed(refused) or "none"))
    return Group(_groups(groups), _worst(worst(rows)), told, target_table(lines))


def target_table(lines: Sequence[Line]) -> Table:
    """What published runs are to come out at, and what they do."""
    table = Table(title="targets", title_justify="left")
    for name in ("what", "target", "reached", "n", ""):
        table.add_column(name, justify="right" if name == "n" else "left")
    for line in lines:
        table.add_row(line.name, line.target, line.reached, str(line.count), VERDICTS[line.met])
    return table


VERDICTS: Mapping[bool | None, str] = {True: "met", False: "missed", None: ""}
"""What is said of a target; nothing where nothing was asked."""


def listed(counts: Mapping[str, int]) -> str:
    """Counts as a list of words."""
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def _groups(groups: Sequence[Mapping[str, Any]]) -> Table:
    by = [name for name in groups[0] if name not in _MEASURES]
    table = Table(title="errors, predicted over measured minus one", title_justify="left")
    for name in by:
        table.add_column(name)
    heads = ("timed", "median", "p90", "bias", "in 10 %", "in 20 %", "constant MFU", "in interval", "tau (groups)")
    for name in (*heads, "memory", "median", "p90", "false OOM"):
        table.add_column(name, justify="right")
    for group in groups:
        time, memory = group["time"] or {}, group["memory"] or {}
        tau = "" if group["kendall"] is None else f"{group['kendall']:.2f} ({group['kendall_groups']})"
        table.add_row(
            *(str(group[name]) for name in by),
            str(time.get("count", "")),
            share(time.get("median")),
            share(time.get("p90")),
            share(time.get("bias"), sign=True),
            share(time.get("within_10")),
            share(time.get("within_20")),
            share(group["floor"]),
            share(group["coverage"]),
            tau,
            str(memory.get("count", "")),
            share(memory.get("median")),
            share(memory.get("p90")),
            str(group["fitting_rows_predicted_oom"] or ""),
            style="bold" if group is groups[-1] else "",
        )
    return table


_MEASURES = (
    "rows",
    "time",
    "floor",
    "memory",
    "coverage",
    "kendall",
    "kendall_groups",
    "orders",
    "fitting_rows_predicted_oom",
    "oom_rows_predicted_to_fit",
)


def _worst(rows: Sequence[Row]) -> Table:
    table = Table(title="furthest off", title_justify="left")
    for name in ("run", "what", "measured", "predicted", "error", "most uncertain by"):
        table.add_column(name, justify="right" if name in ("measured", "predicted", "error") else "left")
    for row in rows:
        what = f"{row.model} on {row.gpu}, {row.stack}"
        times = (seconds(row.measured_step_time_s or 0.0), seconds(row.predicted_step_time_s or 0.0))
        table.add_row(row.run_id, what, *times, share(row.time_error, sign=True), row.blame)
    return table


def scatter(rows: Sequence[Row], path: Path) -> None:
    """Draw predicted over measured step times, a colour a family."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    timed = [row for row in rows if row.time_error is not None]
    families = sorted({row.family for row in timed})
    with rc_context({"svg.hashsalt": "moesim", "font.size": 9}):
        figure = Figure(figsize=(8, 6.5), layout="constrained")
        axes = figure.subplots()
        ends = [f(value for row in timed for value in _times(row)) for f in (min, max)]
        axes.plot(ends, ends, color="black", linewidth=0.8)
        for factor in (1 / 1.2, 1.2):
            axes.plot(ends, [end * factor for end in ends], color="grey", linewidth=0.6, linestyle="--")
        for index, family in enumerate(families):
            points = [_times(row) for row in timed if row.family == family]
            measured, predicted = zip(*points, strict=True)
            axes.scatter(measured, predicted, s=14, alpha=0.7, color=f"C{index}", label=f"{family} ({len(points)})")
        axes.set(xscale="log", yscale="log", xlabel="measured step [s]", ylabel="predicted step [s]")
        axes.legend(fontsize=8, title="dashed: 20 % off")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=110)


def _times(row: Row) -> tuple[float, float]:
    return (row.measured_step_time_s or 0.0, row.predicted_step_time_s or 0.0)
