"""Curves of scaling and budgets as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.cost.pipeline import COMMUNICATION
from moesim.report.estimate import gibibytes, seconds
from moesim.studies.budget import DAY, OVERHEAD, Budget
from moesim.studies.scaling import Point
from moesim.studies.scaling_beside import Beside


def scaling_table(points: Sequence[Point], fixed: str) -> RenderableType:
    """A row a number of nodes."""
    kept = "the same global batch" if fixed == "batch" else "the same batch a GPU"
    table = Table(title=f"scaling at {kept}; efficiency against the first row", title_justify="left")
    for column in (
        "nodes",
        "GPUs",
        "batch",
        "step",
        "tokens/s",
        "MFU",
        "efficiency",
        "exposed",
        "bubble",
        "GiB",
        "binding",
    ):
        table.add_column(column, justify="left" if column == "binding" else "right")
    for point in points:
        answer = point.answer
        if answer is None:
            continue
        shares = {name: answer.exposed_s.get(name, 0.0) / answer.step_time_s for name in COMMUNICATION}
        largest = max(shares, key=lambda name: shares[name])
        table.add_row(
            str(point.nodes),
            str(point.gpus),
            f"{point.global_batch:,}",
            seconds(answer.step_time_s),
            f"{point.tokens_per_s:,.0f}",
            f"{answer.mfu:.1%}",
            f"{point.efficiency:.1%}",
            f"{sum(shares.values()):.1%} ({largest})" if shares[largest] > 0.0005 else "0",
            f"{answer.bubble_fraction:.1%}",
            gibibytes(answer.memory.peak_bytes) + ("" if answer.feasible else " !"),
            answer.binding["resource"],
        )
    return Group(table, *_refused(points))


def beside_tables(found: Beside) -> RenderableType:
    """The curve of every way, and what the others gain."""
    parts: list[RenderableType] = []
    for way in found.ways:
        if len(found.ways) > 1:
            parts.append(Text(way.name, style="bold"))
        parts.append(scaling_table(way.points, found.fixed))
        parts += [Text(f"refused: {line}", style="red") for line in way.refused]
    parts += [Text(found.verdict(way)) for way in found.ways[1:]]
    return Group(*parts)


def budget_table(found: Budget) -> RenderableType:
    """A row a size of cluster, then what moves the answer."""
    table = Table(title=f"{found.tokens:.4g} tokens at a goodput of {found.goodput:.0%}", title_justify="left")
    for column in ("nodes", "GPUs", "days", "90 % interval", "GPU-hours", "money", "MWh", "efficiency", "deadline"):
        table.add_column(column, justify="right")
    for cost in found.costs:
        late = (
            ""
            if cost.meets is None
            else "met"
            if cost.meets
            else f"missed by {(cost.seconds - (found.deadline_s or 0)) / DAY:.1f} d"
        )
        table.add_row(
            str(cost.point.nodes),
            str(cost.point.gpus),
            f"{cost.seconds / DAY:.2f}",
            f"{cost.low_s / DAY:.2f}-{cost.high_s / DAY:.2f}",
            f"{cost.gpu_hours:,.0f}",
            "" if cost.money is None else f"{cost.money:,.0f}",
            f"{cost.energy_j / 3.6e9:,.0f}",
            f"{cost.point.efficiency:.1%}",
            late + ("" if cost.point.answer is None or cost.point.answer.feasible else " DOES NOT FIT"),
        )
    moved = ", ".join(f"{name} {change:+.1%}" for name, change in found.sensitivity.items())
    what = "money" if found.price_per_gpu_hour is not None else "GPU-hours"
    energy = f"MWh: the GPUs at their power limit, x {OVERHEAD:g} for the facility"
    return Group(table, *_refused(found.refused), f"{what} by a tenth more of: {moved}", energy)


def _refused(points: Sequence[Point]) -> list[Text]:
    return [Text(f"{one.nodes} nodes refused: {'; '.join(one.refused)}", "red") for one in points if one.refused]
