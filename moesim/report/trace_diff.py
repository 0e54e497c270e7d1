"""Two traces beside each other, as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.compare import change
from moesim.report.estimate import seconds
from moesim.studies.trace_diff import DeviceDiff, TraceDiff

MOST = 25


def diff_tables(found: TraceDiff) -> RenderableType:
    """GPUs, classes and operators, the largest difference first."""
    parts: list[RenderableType] = [Text(f"first {found.first}, second {found.second}")]
    parts += [_device(one) for one in found.devices]
    table = Table(title="operators, the largest difference first", title_justify="left")
    table.add_column("class")
    table.add_column("operator", overflow="fold", max_width=34)
    table.add_column("shape", overflow="fold", max_width=34)
    for name in ("count", "first", "second", "difference"):
        table.add_column(name, justify="right")
    for one in [one for one in found.ops if one.difference_s or one.state != "both"][:MOST]:
        counts = (
            f"{one.first_count:,}"
            if one.first_count == one.second_count
            else f"{one.first_count:,} to {one.second_count:,}"
        )
        state = {"new": " (new)", "gone": " (gone)", "both": ""}[one.state]
        times = map(seconds, (one.first_s, one.second_s))
        table.add_row(one.family, one.op[:70], one.shape[:70], counts, *times, change(one.difference_s) + state)
    return Group(*parts, table)


def _device(one: DeviceDiff) -> RenderableType:
    table = Table(title=f"GPU {one.first_device} and GPU {one.second_device}", title_justify="left")
    table.add_column("")
    for name in ("first", "second", "difference"):
        table.add_column(name, justify="right")
    for pair in one.figures:
        if pair.name.endswith("_s"):
            cells = (seconds(pair.first), seconds(pair.second), change(pair.difference))
        else:
            cells = (f"{pair.first:,.0f}", f"{pair.second:,.0f}", f"{pair.difference:+,.0f}")
        table.add_row(pair.name.removesuffix("_s").replace("_", " "), *cells)
    table.add_section()
    for pair in one.classes:
        table.add_row(pair.name, seconds(pair.first), seconds(pair.second), change(pair.difference))
    return table
