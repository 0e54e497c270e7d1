"""Curve of a collective over sizes: a table, and a picture with measured rows on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from moesim.cost.machine import Group
from moesim.studies.collectives import CollectivePrice, bus_factor, shown
from moesim.traces.collective_table import Measured

SUFFIXES = (".svg", ".png", ".pdf")
CURVE, ROWS, CORRUPT = "#1f77b4", "#d62728", "#7f7f7f"


def table(prices: Sequence[CollectivePrice], measured: Sequence[Measured] = ()) -> Table:
    """Prices by size with a bar for the rate, the longest the fastest; where there are measured rows, those at most 2 % away in size."""
    most = max(one.busbw for one in prices)
    found = Table(
        "size", "time", "algbw", "busbw", "algorithm", "protocol", "bound by", "busbw, longest bar the fastest"
    )
    if measured:
        found.add_column("measured busbw")
    for one in prices:
        bar = "#" * round((14 if measured else 24) * one.busbw / most)
        words = [shown(one.size, "bytes"), shown(one.time, "time"), shown(one.algbw, "rate"), shown(one.busbw, "rate")]
        words += [one.algorithm, one.protocol, one.binding, bar]
        if measured:
            near = [rate(row) / 1e9 for row in measured if abs(row.size / one.size - 1) < 0.02]
            words.append(f"{min(near):.1f}-{max(near):.1f} GB/s ({len(near)})" if near else "")
        found.add_row(*words)
    return found


def rate(row: Measured) -> float:
    """Bus bandwidth of a measured row. [B/s]"""
    return bus_factor(row.collective, Group(row.ranks, row.per_node)) * row.size / (row.time or float("inf"))


def draw(prices: Sequence[CollectivePrice], measured: Sequence[Measured], title: str, path: Path) -> None:
    """Draw busbw over size with the 90 % interval, and measured rows, into a file of one of :data:`SUFFIXES`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    sizes, factor = [one.size for one in prices], bus_factor(prices[0].collective, prices[0].group)
    with mpl.rc_context({"svg.hashsalt": "moesim", "font.size": 10, "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 5.5), layout="constrained")
        axes = figure.subplots()
        low, high = ([factor * one.size / getattr(one, end) / 1e9 for one in prices] for end in ("high", "low"))
        axes.fill_between(sizes, low, high, color=CURVE, alpha=0.2, linewidth=0, label="90 % interval")
        axes.plot(sizes, [one.busbw / 1e9 for one in prices], color=CURVE, label="expected")
        for name, colour, wrong in (("measured", ROWS, False), ("measured, data came out wrong", CORRUPT, True)):
            rows = [row for row in measured if row.wrong == wrong]
            if rows:
                places = [row.size for row in rows], [rate(row) / 1e9 for row in rows]
                axes.plot(*places, ".", color=colour, markersize=6, label=f"{name} ({len(rows)} rows)")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("size [B]")
        axes.set_ylabel("busbw [GB/s]")
        axes.set_title(title, fontsize=10)
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        axes.legend(loc="lower right", fontsize=9)
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else {})
