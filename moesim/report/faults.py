"""A step with a fault beside the one without."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.compare import change
from moesim.report.estimate import NAMES, seconds
from moesim.report.fabric import bandwidth
from moesim.result import Estimate
from moesim.studies.faults import Faulted


def fault_table(found: Faulted, before: Estimate, after: Estimate) -> RenderableType:
    """The step before and after, its terms that move, and the groups that suffer."""
    table = Table()
    for name in (before.name, "without", f"with {found.fault}"):
        table.add_column(name, justify="left" if name == before.name else "right")
    table.add_row("step", seconds(before.step_time_s), seconds(after.step_time_s), style="bold")
    for name, value in before.breakdown_s.items():
        if abs(after.breakdown_s[name] - value) > 1e-6 * before.step_time_s:
            table.add_row(NAMES[name], seconds(value), change(after.breakdown_s[name] - value))
    ranks = ", ".join(map(str, found.stages)) or "none"
    slower = after.step_time_s / before.step_time_s - 1
    verdict = f"{slower:+.2%} of the step; slower pipeline ranks: {ranks}"
    return Group(table, Text(verdict, style="bold"), *([groups_table(found)] if found.effects else []))


def groups_table(found: Faulted) -> Table:
    """A row an axis: what its groups lose, and which."""
    table = Table(title="groups, all of an axis at once", title_justify="left")
    for name in ("axis", "pattern"):
        table.add_column(name, no_wrap=True)
    for name in ("per rank", "worst group", "slower", "groups that suffer"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ranks of the worst one")
    for row in found.effects:
        listed = ", ".join(map(str, row.ranks[:8])) + (", ..." if len(row.ranks) > 8 else "")
        table.add_row(
            row.axis,
            row.pattern,
            bandwidth(row.before),
            bandwidth(row.after),
            f"{row.before / row.after:.2f}x",
            f"{row.suffering:,} of {row.groups:,}",
            listed,
        )
    return table
