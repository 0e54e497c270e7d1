"""The trade-off matrix as a picture: methods in their groups, signs and colours that do not need each other."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from moesim.base.errors import SpecError
from moesim.matrix.answer import Answer
from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.methods import methods
from moesim.matrix.published import COMPLEXITY
from moesim.matrix.rule import BLANK, DEPENDS, MINUS, PLUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILLS = {PLUS: "#9ecae9", MINUS: "#f6b26b", DEPENDS: "#d9d9d9", BLANK: "#ffffff"}
"""Blue, orange and grey: told apart without red and green, and in grey by their lightness."""
INK = {PLUS: "#08306b", MINUS: "#7f2704", DEPENDS: "#333333", BLANK: "#ffffff"}
SYMBOLS = {PLUS: "+", MINUS: "−", DEPENDS: "△", BLANK: ""}
WORDS = {
    PLUS: "reduces the bottleneck",
    MINUS: "adds to the bottleneck",
    DEPENDS: "depends on setting, variant or comparison",
}
"""What a sign means, for the legend."""
FAMILY_TITLES = {
    "state": "training state",
    "update": "weight update",
    "activations": "activations",
    "balance": "imbalance",
    "traffic": "traffic",
    "layout": "layout",
    "compute": "compute",
    "host": "host",
    "waiting": "waiting",
    "checkpoint": "checkpoint",
}
CELL_WIDTH, CELL_HEIGHT = 0.42, 0.31
"""Inches of a cell."""
LEFT, TOP, BOTTOM = 3.85, 1.6, 0.8
"""Inches for the names of rows, for those of columns, and for the legend."""
LEGEND = 8.6
"""Inches that the words of the legend take across."""


def draw(found: Answer, path: Path) -> None:
    """Draw the matrix into an .svg, .png or .pdf."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise SpecError.single("--out", "", "a picture needs matplotlib", "pip install 'moesim[plot]'") from None
    rows, columns = _rows(found), list(found.matrix.methods)
    width = LEFT + max(CELL_WIDTH * len(columns) + 0.45, LEGEND)
    height = TOP + CELL_HEIGHT * len(rows) + BOTTOM
    with mpl.rc_context({"svg.hashsalt": "moesim", "svg.fonttype": "none", "font.size": 11}):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        _heads(axes, columns)
        for number, (name, family) in enumerate(rows):
            _row(axes, found, name, family, TOP + CELL_HEIGHT * number, columns)
        _families(axes, rows, len(columns))
        _legend(axes, found, height - BOTTOM + 0.3)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata)


def _rows(found: Answer) -> list[tuple[str, str]]:
    """Rows by name, with their family; the report's judgement last, where it is at hand."""
    rows = [(name, bottlenecks.get(name).family) for name in found.matrix.bottlenecks]
    order = list(FAMILY_TITLES)
    rows.sort(key=lambda row: order.index(row[1]) if row[1] in order else len(order))
    return [*rows, ("", "")] if found.complexity else rows


def _heads(axes: Axes, columns: list[str]) -> None:
    for number, name in enumerate(columns):
        x = LEFT + CELL_WIDTH * (number + 0.5)
        axes.text(
            x - 0.05, TOP - 0.22, methods.get(name).title, rotation=45, ha="left", va="bottom", rotation_mode="anchor"
        )
    start = 0
    for group, members in groupby(columns, key=lambda name: methods.get(name).group):
        count = len(list(members))
        left, right = LEFT + CELL_WIDTH * start + 0.04, LEFT + CELL_WIDTH * (start + count) - 0.04
        axes.plot([left, right], [TOP - 0.03] * 2, color="#555555", linewidth=2.2, solid_capstyle="butt")
        axes.text((left + right) / 2, TOP - 0.07, group, ha="center", va="bottom", fontsize=7, color="#555555")
        start += count


def _row(axes: Axes, found: Answer, name: str, family: str, top: float, columns: list[str]) -> None:
    title = bottlenecks.get(name).title if family else f"{COMPLEXITY} *"
    axes.text(
        LEFT - 0.12, top + CELL_HEIGHT / 2, title, ha="right", va="center", style="normal" if family else "italic"
    )
    for number, method in enumerate(columns):
        possible = not family or found.matrix.cells[method, name].possible
        sign = found.matrix.sign(method, name) if family else found.complexity.get(method, BLANK)
        left = LEFT + CELL_WIDTH * number
        _cell(axes, left, top, sign, judged=not family, possible=possible)


def _cell(axes: Axes, left: float, top: float, sign: str, judged: bool = False, possible: bool = True) -> None:
    from matplotlib.patches import Rectangle

    fill = "#f2f2f2" if not possible else "#ffffff" if judged else FILLS[sign]
    edge = "white" if sign and not judged else "#e3e3e3"
    axes.add_patch(Rectangle((left, top), CELL_WIDTH, CELL_HEIGHT, facecolor=fill, edgecolor=edge))
    text, ink, size = (SYMBOLS[sign], INK[sign], 14) if possible else ("n/a", "#777777", 7.5)
    if sign == DEPENDS:
        x, y, w, h = left + CELL_WIDTH / 2, top + CELL_HEIGHT / 2, 0.085, 0.075
        axes.fill([x - w, x + w, x], [y + h, y + h, y - h], facecolor="none", edgecolor=ink, linewidth=1.1)
        return
    axes.text(
        left + CELL_WIDTH / 2,
        top + CELL_HEIGHT / 2,
        text,
        ha="center",
        va="center",
        color=ink,
        fontsize=size,
        fontweight="bold" if possible else "normal",
    )


def _families(axes: Axes, rows: list[tuple[str, str]], columns: int) -> None:
    start = 0
    for family, members in groupby(rows, key=lambda row: row[1]):
        count = len(list(members))
        y = TOP + CELL_HEIGHT * start
        if start:
            axes.plot([0.12, LEFT + CELL_WIDTH * columns], [y, y], color="#888888", linewidth=0.7)
        lines = FAMILY_TITLES.get(family, family or "judged").replace(" ", "\n")
        axes.text(0.12, y + CELL_HEIGHT * count / 2, lines, ha="left", va="center", color="#555555", fontsize=9)
        start += count


def _legend(axes: Axes, found: Answer, top: float) -> None:
    x = LEFT
    for sign in (PLUS, MINUS, DEPENDS):
        _cell(axes, x, top - CELL_HEIGHT / 2, sign)
        words = WORDS[sign]
        axes.text(x + CELL_WIDTH + 0.08, top, words, va="center", fontsize=10)
        x += CELL_WIDTH + 0.4 + 0.078 * len(words)
    about = "empty: no direct effect"
    if found.complexity:
        about += ";  * the report's judgement, not derived"
    axes.text(LEFT, top + 0.28, about, va="center", fontsize=10, color="#444444")
    where = found.own or f"{found.matrix.scenarios} scenarios"
    axes.text(0.12, top, where, va="center", fontsize=10, color="#444444")
