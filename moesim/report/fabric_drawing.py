"""Drawings of fabrics: rows of switches, grids, circles."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from moesim.base.errors import SpecError
from moesim.fabric.builders.dragonfly import Dragonfly
from moesim.fabric.hierarchy import Hierarchy, Level
from moesim.fabric.mesh import FullMesh
from moesim.fabric.torus import Torus
from moesim.report.fabric import bandwidth
from moesim.studies.fabric_view import FabricView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 16
"""Boxes of a row that are drawn; the middle of a longer row is left out. [-]"""
FORMATS = (".svg", ".png", ".pdf")
BOX, LINE, WRAP = "#dce6f2", "#5b7fa8", "#c98a3a"
RAILS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#9c755f", "#edc948")

Spots = dict[int, float]


def draw(view: FabricView, path: Path) -> None:
    """Draw a fabric into a file; the ending says which kind."""
    if path.suffix not in FORMATS:
        raise SpecError.single(
            "--plot", "", f"'{path.name}' is no drawing", f"a file that ends in {', '.join(FORMATS)}"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SpecError.single("--plot", "", "needs matplotlib", "pip install 'moesim[plot]'") from None

    fabric, shape = view.network.reduced, view.network.shape
    figure = Figure(figsize=(11, 7))
    in_rows = isinstance(fabric, Hierarchy) and not (isinstance(fabric, Dragonfly) and fabric.groups > 1)
    axes = figure.add_axes((0.02, 0.02, 0.96 if in_rows else 0.76, 0.92))
    axes.set_axis_off()
    match fabric:
        case Torus():
            _grid(axes, fabric)
        case Dragonfly() if fabric.groups > 1:
            _dragonfly(axes, fabric)
        case Hierarchy():
            _rows(axes, fabric, shape.gpus_per_node)
        case FullMesh():
            _circle(axes, shape.num_nodes, fabric.link_bandwidth, joined=True)
        case _:
            raise SpecError.single("--plot", "", f"fabrics of kind {view.network.kind} have no drawing", "leave it out")
    nodes = f"{shape.num_nodes:,} node{'s' * (shape.num_nodes > 1)}"
    title = f"{view.name}: {shape.num_gpus:,} GPUs in {nodes}, bisection {bandwidth(view.bisection)} each way"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.savefig(path, dpi=110)


def _rows(axes: Axes, fabric: Hierarchy, per_node: int) -> None:
    """Nodes at the bottom, a row for each level of switches above; parallel switches of a unit are one box."""
    ranks = np.arange(fabric.world, dtype=np.int64)
    base = max(fabric.domain, per_node)
    if base >= fabric.world:
        base = 1
    homes = ranks // base
    axes.set_xlim(-0.2, 1.0)
    axes.set_ylim(-0.3, max(1, len(fabric.levels)) + 0.3)
    word = "GPU" if base == 1 else "node" if base == per_node else "NVLink domain"
    spots = _row(axes, [f"{word}\n{home}" for home in np.unique(homes).tolist()], 0.0, np.unique(homes).tolist())
    inside = (
        ""
        if base == 1
        else f"{base} GPUs each" + (f"\nNVLink {bandwidth(fabric.nvlink_bandwidth)}" if fabric.domain > 1 else "")
    )
    _label(axes, 0.0, f"{len(np.unique(homes)):,} {word}s", inside)
    if not fabric.levels:
        if base == 1:
            top = _row(axes, ["NVSwitch"], 1.0, [0])
            _label(axes, 1.0, "1 domain", f"{bandwidth(fabric.nvlink_bandwidth)}\na GPU")
            for x in spots.values():
                axes.plot([x, top[0]], [0.0, 1.0], color=LINE, lw=1.2, zorder=1)
        return
    below, width = homes, 1
    for height, level in enumerate(fabric.levels, 1):
        above = fabric.levels[height].unit(ranks) if height < len(fabric.levels) else ranks % fabric.top_lanes
        width *= level.links
        lanes = fabric.levels[height].lanes if height < len(fabric.levels) else fabric.top_lanes
        units = np.unique(above).tolist()
        if lanes > 1:  # the leaves of a rail stand together
            units.sort(key=lambda unit: (unit // lanes, unit % lanes))
        names = [_switches(level.into, unit, width, lanes) for unit in units]
        placed = _row(axes, names, float(height), units)
        count = 1 if level.into == "wan" else len(units) * width
        groups = f"in {len(units)} groups" if 1 < len(units) < count else ""
        _label(axes, float(height), f"{count:,} {_plural(level.into, count)}", groups)
        _links(axes, (spots, placed), (below, above), height, lanes)
        _capacity(axes, fabric, level, height)
        spots, below = placed, above


def _row(axes: Axes, names: list[str], y: float, units: list[int]) -> Spots:
    """Draw the boxes of a row; return where those that are drawn stand."""
    count = len(names)
    chosen = list(range(count)) if count <= SHOWN else [*range(SHOWN // 2), *range(count - SHOWN // 2, count)]
    slots = len(chosen) + (1 if count > SHOWN else 0)
    spots: Spots = {}
    size = 8 if slots <= 12 else 6.5
    for place, index in enumerate(chosen):
        slot = place if count <= SHOWN or place < SHOWN // 2 else place + 1
        x = (slot + 0.5) / slots
        spots[units[index]] = x
        box = {"boxstyle": "round,pad=0.35", "facecolor": BOX, "edgecolor": LINE}
        axes.text(x, y, names[index], ha="center", va="center", fontsize=size, bbox=box, zorder=3)
    if count > SHOWN:
        axes.text(0.5, y, f"· · ·\n{count - SHOWN} more", ha="center", va="center", fontsize=7, zorder=3)
    return spots


def _links(
    axes: Axes, rows: tuple[Spots, Spots], units: tuple[np.ndarray, np.ndarray], height: int, lanes: int
) -> None:
    lower, upper = rows
    pairs = np.unique(np.stack(units), axis=1).T.tolist()
    for one, other in pairs:
        if one in lower and other in upper:
            colour = RAILS[other % lanes % len(RAILS)] if lanes > 1 else LINE
            axes.plot([lower[one], upper[other]], [height - 1, height], color=colour, lw=0.9, alpha=0.8, zorder=1)


def _label(axes: Axes, y: float, name: str, more: str) -> None:
    axes.text(-0.2, y, f"{name}\n{more}".strip(), ha="left", va="center", fontsize=8.5)


def _capacity(axes: Axes, fabric: Hierarchy, level: Level, height: int) -> None:
    tier = next(tier for tier in fabric.tiers if tier.name == level.into)
    text = f"{bandwidth(tier.bandwidth)} a GPU"
    if tier.oversubscription > 1.005:
        text += f"\n{tier.oversubscription:.3g} to 1"
    axes.text(-0.2, height - 0.5, text, ha="left", va="center", fontsize=7.5, color=LINE)


def _switches(word: str, unit: int, width: int, lanes: int) -> str:
    """What stands in a box: one switch, or the switches of a unit."""
    if word == "wan":
        return "WAN"
    if width > 1:
        return f"{width}\n{_plural(word, width)}"
    return f"{word}\nrail {unit % lanes}" if lanes > 1 else f"{word}\n{unit}"


def _plural(word: str, count: int) -> str:
    if word == "wan":
        return "WAN"
    return (
        word
        if count == 1 or not word[-1].isalpha()
        else "leaves"
        if word == "leaf"
        else f"{word}{'e' * word.endswith('ch')}s"
    )


def _grid(axes: Axes, fabric: Torus) -> None:
    """Nodes on a grid, the third dimension drawn aslant; links around the ends as arcs."""
    sides = [side for side in fabric.sides if side > 1] or [1]
    if len(sides) == 1:
        _circle(axes, sides[0], fabric.link_bandwidth, joined=False, closed=fabric.wrap)
        return
    sides += [1] * (3 - len(sides))
    nodes = math.prod(sides)
    wide = 1.62 if sides[2] > 1 else 1.0
    aslant = 3 / max(3, sides[2])
    spots: list[tuple[float, float]] = []
    for node in range(nodes):
        i, j, k = node % sides[0], node // sides[0] % sides[1], node // sides[0] // sides[1]
        spots.append((i * wide + 0.42 * k * aslant, j * wide + 0.36 * k * aslant))
    step = 1
    for index, side in enumerate(sides):
        for node in range(nodes):
            place = node // step % side
            if place + 1 < side:
                _segment(axes, spots[node], spots[node + step], RAILS[index])
            elif fabric.wrap and side > 2:
                _arc(axes, spots[node], spots[node - step * (side - 1)], RAILS[index])
        step *= side
    size = 260 if nodes <= 64 else 90 if nodes <= 256 else 25
    xs, ys = zip(*spots, strict=True)
    axes.scatter(xs, ys, s=size, color=BOX, edgecolors=LINE, zorder=3)
    if nodes <= 64:
        for node, (x, y) in enumerate(spots):
            axes.text(x, y, str(node), ha="center", va="center", fontsize=7, zorder=4)
    for index, side in enumerate(side for side in sides if side > 1):
        axes.plot([], [], color=RAILS[index], label=f"{'xyz'[index]}: {side} nodes")
    axes.plot([], [], alpha=0, label=f"{bandwidth(fabric.link_bandwidth)} a link and direction")
    axes.margins(0.02 if not fabric.wrap else 0.16)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8.5)
    axes.set_aspect("equal")


def _segment(axes: Axes, one: tuple[float, float], other: tuple[float, float], colour: str) -> None:
    axes.plot([one[0], other[0]], [one[1], other[1]], color=colour, lw=1.4, alpha=0.85, zorder=1)


def _arc(axes: Axes, one: tuple[float, float], other: tuple[float, float], colour: str) -> None:
    axes.annotate(
        "",
        xy=other,
        xytext=one,
        arrowprops={"arrowstyle": "-", "connectionstyle": "arc3,rad=0.28", "color": colour, "lw": 0.8, "alpha": 0.6},
        zorder=1,
    )


def _circle(axes: Axes, count: int, link_bandwidth: float, *, joined: bool, closed: bool = True) -> None:
    """Nodes around a circle: each joined with the next, or with all."""
    angles = [math.pi / 2 - 2 * math.pi * node / count for node in range(count)]
    spots = [(math.cos(angle), math.sin(angle)) for angle in angles]
    for one in range(count):
        others = (
            range(one + 1, count)
            if joined
            else [(one + 1) % count]
            if one + 1 < count or (closed and count > 2)
            else []
        )
        for other in others:
            _segment(axes, spots[one], spots[other], LINE)
    _dots(axes, spots, [str(node) for node in range(count)])
    axes.text(1.25, 1.0, f"{bandwidth(link_bandwidth)}\na link and direction", ha="left", va="top", fontsize=8.5)


def _dots(axes: Axes, spots: list[tuple[float, float]], names: list[str]) -> None:
    xs, ys = zip(*spots, strict=True)
    axes.scatter(xs, ys, s=300 if len(spots) <= 40 else 60, color=BOX, edgecolors=LINE, zorder=3)
    if len(spots) <= 40:
        for (x, y), name in zip(spots, names, strict=True):
            axes.text(x, y, name, ha="center", va="center", fontsize=7.5, zorder=4)
    axes.set_aspect("equal")


def _dragonfly(axes: Axes, fabric: Dragonfly) -> None:
    """Groups around a circle, their routers around a circle of their own, and the links between groups."""
    count = min(fabric.groups, SHOWN)
    radius = min(0.30, 2.2 / count)
    centres = [
        (math.cos(a), math.sin(a)) for a in (math.pi / 2 - 2 * math.pi * group / count for group in range(count))
    ]
    for one in range(count):
        for other in range(one + 1, count):
            _segment(axes, centres[one], centres[other], WRAP)
    for group, (x, y) in enumerate(centres):
        shown = min(fabric.routers, 12)
        ring = [
            (x + radius * math.cos(2 * math.pi * r / shown), y + radius * math.sin(2 * math.pi * r / shown))
            for r in range(shown)
        ]
        axes.scatter([x], [y], s=(radius * 300) ** 2, color="white", edgecolors=LINE, zorder=2)
        for one in range(shown):
            for other in range(one + 1, shown):
                axes.plot([ring[one][0], ring[other][0]], [ring[one][1], ring[other][1]], color=LINE, lw=0.5, zorder=3)
        axes.scatter([at for at, _ in ring], [at for _, at in ring], s=14, color=LINE, zorder=4)
        box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"}
        axes.text(x, y, f"group {group}", ha="center", va="center", fontsize=7.5, bbox=box, zorder=5)
    left_out = f"\n{fabric.groups - count} more groups are not drawn" if fabric.groups > count else ""
    words = (
        f"{fabric.groups} groups of {fabric.routers} routers\n{fabric.per_router} GPUs a router\n"
        f"{fabric.global_links} global links a router\n{bandwidth(fabric.between_groups)} between two groups{left_out}"
    )
    axes.text(1.45, 1.1, words, ha="left", va="top", fontsize=8.5)
    axes.set_aspect("equal")
