"""The operations of a step on the roofline of their GPU: a picture and a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import NAMES, seconds
from moesim.studies.roofline import Point, Roofline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png", ".pdf")
COLOURS = {
    "gemm": "#1f77b4",
    "grouped_gemm": "#d62728",
    "attention": "#2ca02c",
    "memory_bound": "#7f7f7f",
    "optimizer": "#17becf",
    "ep": "#ff7f0e",
    "tp": "#9467bd",
    "cp": "#8c564b",
    "pp": "#bcbd22",
    "dp": "#e377c2",
}
LABELLED = 0.015
"""Share of the step from which a point has a label."""
MOST_LABELS = 9
APART = 14
"""Distance in pixels below which two points share a label."""
LINKS = {"hbm": "HBM", "nvlink": "NVLink", "nic": "NIC"}


def table(found: Roofline) -> RenderableType:
    """Operations by the time they take in the step."""
    roofs = [f"{name} {rate / 1e12:,.0f} TFLOP/s" for name, rate in found.flop_roofs.items()]
    roofs += [f"{LINKS[name]} {rate / 1e9:,.0f} GB/s" for name, rate in found.byte_roofs.items()]
    rows = Table(
        title=f"roofs of {found.gpu}: {', '.join(roofs)}", title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0)
    )
    for name in ("where", "operation", "ranks", "bound"):
        rows.add_column(name, no_wrap=True)
    for name in ("calls", "GFLOP", "MB", "FLOP/B", "us", "rate", "roof", "step"):
        rows.add_column(name, justify="right", no_wrap=True)
    for point in found.points:
        rows.add_row(point.where, point.name, stages(point.stages), point.bound, *_numbers(point))
    rows.caption = (
        f"roof: share of what the datasheet allows; step: time of all calls over the step. {found.convention}"
    )
    rows.caption_justify = "left"
    return Group(Text(f"{found.name}: {seconds(found.step_time_s)}", style="bold"), rows)


def _numbers(point: Point) -> tuple[str, ...]:
    counted = point.intensity is not None
    return (
        str(point.calls),
        f"{point.flop / 1e9:.0f}" if point.flop else "",
        f"{(point.message_bytes or point.hbm_bytes) / 1e6:.1f}",
        f"{point.intensity:.0f}" if counted else "",
        f"{point.seconds * 1e6:.0f}",
        f"{point.rate / 1e12:.0f} TFLOP/s" if counted else f"{point.rate / 1e9:.0f} GB/s",
        f"{point.share_of_roof:.0%}",
        f"{point.share_of_step:.1%}",
    )


def stages(ranks: Sequence[int]) -> str:
    """Ranks in a row as a span: 0-3, 7."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def draw(found: Roofline, path: Path) -> None:
    """Draw the roofline, and beside it what moves bytes without counted FLOP, into a file of one of :data:`SUFFIXES`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "moesim", "font.size": 10, "svg.fonttype": "none"}):
        figure = Figure(figsize=(15, 9.5), layout="constrained")
        (left, right), keys = figure.subplots(2, 2, width_ratios=(1.15, 1), height_ratios=(1, 0.24))
        counted = [point for point in found.points if point.intensity is not None]
        moving = [point for point in found.points if point.intensity is None]
        _flop_panel(left, found, counted)
        _byte_panel(right, found, moving)
        figure.draw_without_rendering()
        for axes, key, points in zip((left, right), keys, (counted, moving), strict=True):
            _label(axes, key, points)
        figure.suptitle(f"{found.name} on {found.gpu}: one step of {seconds(found.step_time_s)}", fontweight="bold")
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=130, metadata=metadata)


def _flop_panel(axes: Axes, found: Roofline, points: list[Point]) -> None:
    hbm = found.byte_roofs["hbm"]
    intensities = [point.intensity for point in points if point.intensity]
    ridge = max(found.flop_roofs.values()) / hbm
    low, high = min([ridge / 8, *intensities]) / 2, max([ridge * 8, *intensities]) * 3
    for (name, peak), style in zip(found.flop_roofs.items(), ("-", "--", "-.", ":"), strict=False):
        line = [low, peak / hbm, high]
        axes.plot(line, [min(peak, x * hbm) for x in line], style, color="black", linewidth=1.2, zorder=1)
        axes.annotate(
            f"{name} {peak / 1e12:,.0f} TFLOP/s", (high, peak), (-4, 4), textcoords="offset points", ha="right"
        )
    axes.annotate(f"HBM {hbm / 1e12:.2f} TB/s", (2 * low, 2 * low * hbm), (12, -6), textcoords="offset points")
    axes.set_xlim(low, high)
    _scatter(axes, points)
    axes.set_ylim(min([low * hbm, *(point.rate for point in points)]) / 2, max(found.flop_roofs.values()) * 2.5)
    axes.set_xlabel("FLOP per HBM byte")
    axes.set_ylabel("FLOP/s")
    axes.set_title("matrix products and attention; a point's area is its share of the step", fontsize=10)


def _byte_panel(axes: Axes, found: Roofline, points: list[Point]) -> None:
    sizes = [_place(point)[0] for point in points] or [1e6]
    low, high = min(sizes) / 3, max(sizes) * 30
    used = {point.format for point in points} | {"hbm"}
    for name, rate in found.byte_roofs.items():
        if name in used:
            axes.axhline(rate, color="black", linewidth=1.2, zorder=1)
            axes.annotate(
                f"{LINKS[name]} {rate / 1e9:,.0f} GB/s", (high, rate), (-4, 4), textcoords="offset points", ha="right"
            )
    axes.set_xlim(low, high)
    _scatter(axes, points)
    roofs = [rate for name, rate in found.byte_roofs.items() if name in used]
    rates = [point.rate for point in points]
    axes.set_ylim(max(min([*rates, *roofs]) / 2, min(roofs) / 300), max([*rates, *roofs]) * 2.5)
    axes.set_xlabel("bytes of one call (read and written, or the payload of a message)")
    axes.set_ylabel("B/s")
    axes.set_title("memory-bound kernels and messages", fontsize=10)


def _place(point: Point) -> tuple[float, float]:
    """Where a point is drawn: over FLOP per byte, or over bytes."""
    return (point.intensity or point.message_bytes or point.hbm_bytes, point.rate)


def _scatter(axes: Axes, points: list[Point]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for family, colour in COLOURS.items():
        chosen = [point for point in points if point.family == family]
        if chosen:
            across, up = zip(*(_place(point) for point in chosen), strict=True)
            areas = [20 + 4000 * point.share_of_step for point in chosen]
            axes.scatter(across, up, s=areas, color=colour, alpha=0.55, edgecolors="white", zorder=2)
            axes.scatter([], [], s=60, color=colour, alpha=0.55, label=NAMES[family])
    if points:
        axes.legend(loc="lower right", fontsize=9, framealpha=0.9)


def _label(axes: Axes, key: Axes, points: list[Point]) -> None:
    """Number the points that matter, those on top of each other together, and say below what they are."""
    key.set_axis_off()
    groups: list[list[Point]] = []
    spots: list[tuple[float, float]] = []
    for point in points:
        if point.share_of_step < LABELLED:
            continue
        across, up = axes.transData.transform(_place(point))
        near = (
            index for index, spot in enumerate(spots) if abs(across - spot[0]) < APART and abs(up - spot[1]) < APART
        )
        index = next(near, len(groups))
        if index == len(groups):
            groups.append([])
            spots.append((across, up))
        groups[index].append(point)
    for number, members in enumerate(groups[:MOST_LABELS]):
        axes.annotate(
            str(number + 1),
            _place(members[0]),
            (0, 12 if number % 2 else -20),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            fontweight="bold",
        )
        share = sum(point.share_of_step for point in members)
        names = ", ".join(dict.fromkeys(f"{point.name} ({point.where.split()[-1]})" for point in members[:4]))
        more = f" and {len(members) - 4} more" if len(members) > 4 else ""
        text = f"{number + 1}  {share:.0%}  {names}{more}"
        key.text(0.0, 0.97 - 0.11 * number, text, transform=key.transAxes, fontsize=8.5, va="top")
