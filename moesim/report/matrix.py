"""The trade-off matrix as a table, as CSV, and the evidence behind a cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.units import format_quantity
from moesim.matrix.answer import Answer
from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.cells import Cell, FloatArray, Way
from moesim.matrix.methods import methods
from moesim.matrix.published import COMPLEXITY
from moesim.matrix.rule import BLANK, DEPENDS, MINUS, PLUS, SHOWN

STYLES = {PLUS: "blue", MINUS: "dark_orange3", DEPENDS: "grey50", BLANK: ""}
ABSENT = "n/a"
LEGEND = "+ reduces, - adds, △ depends, empty no direct effect"
DIMENSIONS = {"B": "bytes", "s": "time"}
SIGNS_A_TABLE, SIZES_A_TABLE, NAMED = 24, 7, 8
"""Methods beside each other: signs, sizes, and signs under names in place of numbers."""
MOST = 6
"""Scenarios of a way that are listed."""


def quantity(value: float, unit: str) -> str:
    """A number with its unit, as people read it."""
    if unit in DIMENSIONS:
        return format_quantity(value, DIMENSIONS[unit]) if value else "0"
    return f"{value:.3g}" + ("" if unit == "-" else f" {unit}")


def size_of(cell: Cell) -> str:
    """How much of a bottleneck there is with a method, over without; what it adds where there was none."""
    if not cell.possible:
        return ABSENT
    if cell.sign == BLANK:
        return ""
    changed = _changed(cell)
    if not len(changed):
        return _new(cell)
    low, middle, high = (float(value) for value in np.quantile(changed, (0.1, 0.5, 0.9)))
    return f"x{low:.2g}-{high:.2g}" if cell.sign == DEPENDS and high > low * 1.01 else f"x{middle:.2g}"


def _new(cell: Cell) -> str:
    """What a method adds where there was nothing: the median."""
    samples = [sample for one in cell.against for way in one.ways for sample in way.samples]
    added = np.concatenate([*(sample.on[sample.on > 0] for sample in samples), np.zeros(0)])
    return "+" + quantity(float(np.median(added)), bottlenecks.get(cell.bottleneck).unit) if len(added) else "new"


def _changed(cell: Cell) -> FloatArray:
    """With over without, in the scenarios in which something changes."""
    found = [
        sample.on[both] / sample.off[both]
        for one in cell.against
        for way in one.ways
        for sample in way.samples
        if (both := (sample.off > 0) & (np.abs(sample.signs) == 1)).any()
    ]
    return np.concatenate([*found, np.zeros(0)])


def sign_of(cell: Cell) -> str:
    """Sign of a cell, or that no scenario can have the method."""
    return cell.sign if cell.possible else ABSENT


def table(found: Answer, size: bool = False) -> RenderableType:
    """Bottlenecks by methods, so many beside each other as fit; with `size` how much in place of the sign."""
    names = found.matrix.methods
    most = SIZES_A_TABLE if size else SIGNS_A_TABLE
    parts: list[RenderableType] = [Text(_about(found), style="bold")]
    for start in range(0, len(names), most):
        parts.extend(_part(found, size, names[start : start + most], start))
    notes = [_sizes_note() if size else LEGEND]
    if any(not cell.possible for cell in found.matrix.cells.values()):
        notes.append(f"{ABSENT}: no such strategy is legal there")
    if found.complexity and not size:
        notes.append("* the report's judgement, not derived")
    return Group(*parts, Text("; ".join(notes)), *_agreement(found))


def _part(found: Answer, size: bool, names: Sequence[str], start: int) -> list[RenderableType]:
    """One table, with a line of what its numbers stand for where names are too long for heads."""
    matrix = found.matrix
    heads = [methods.get(name).title for name in names]
    numbered = not size and len(names) > NAMED
    shown = Table(box=SIMPLE, padding=(0, 1 if size else 0, 0, 0), pad_edge=False)
    shown.add_column("bottleneck", no_wrap=True)
    for number, head in enumerate(heads, start=start + 1):
        shown.add_column(str(number) if numbered else head, justify="center", no_wrap=True)
    for row in matrix.bottlenecks:
        shown.add_row(row, *(_text(matrix.cells[method, row], size) for method in names))
    judged = [found.complexity.get(method, BLANK) for method in names]
    if any(judged) and not size:
        shown.add_row("integration complexity *", *(Text(sign, STYLES[sign] + " dim") for sign in judged))
    legend = ", ".join(f"{number} {head}" for number, head in enumerate(heads, start=start + 1))
    return [*([Text(legend)] if numbered else []), shown]


def _text(cell: Cell, size: bool) -> Text:
    return Text(size_of(cell) if size else sign_of(cell), style=STYLES[cell.sign] if cell.possible else "dim")


def _sizes_note() -> str:
    return "quantity with the method over without, median; x0.1-10: where it depends, 10 % to 90 %; +1 GB: none without"


def _about(found: Answer) -> str:
    if found.own is not None:
        return f"{found.own}: {len(found.matrix.methods)} methods against {len(found.matrix.bottlenecks)} bottlenecks"
    return f"{found.matrix.scenarios} scenarios in {len(found.situations)} situations"


def _agreement(found: Answer) -> list[Text]:
    told = found.agreement
    if told is None:
        return []
    kinds = ", ".join(f"{told.count(kind)} {kind}" for kind in ("opposite", "missing", "extra", "other"))
    line = (
        f"published matrix: {told.equal} of {told.cells} cells equal, {told.equal_signs} of {told.signs} that are not "
        f"blank; {kinds}"
    )
    return [Text(line)]


def csv_text(found: Answer, size: bool = False) -> str:
    """The matrix as the published one is kept: a column for each method, cells + - triangle or empty."""
    matrix = found.matrix
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(["bottleneck", *(methods.get(name).title for name in matrix.methods)])
    for row in matrix.bottlenecks:
        cells = [matrix.cells[method, row] for method in matrix.methods]
        shown = [size_of(cell) if size else cell.sign for cell in cells]
        writer.writerow([bottlenecks.get(row).title, *shown])
    if found.complexity and not size:
        writer.writerow([COMPLEXITY, *(found.complexity.get(name, "") for name in matrix.methods)])
    return page.getvalue()


def evidence(found: Answer) -> RenderableType:
    """Every cell with what it follows from: each thing it is set against, each way, the scenarios and their terms."""
    parts: list[RenderableType] = []
    for cell in found.matrix.cells.values():
        parts.extend(_cell_evidence(cell))
    return Group(*parts)


def _cell_evidence(cell: Cell) -> list[RenderableType]:
    method, row = methods.get(cell.method), bottlenecks.get(cell.bottleneck)
    head = f"{method.title} and {row.title}: {cell.sign or 'blank'} ({SHOWN[cell.sign]})"
    parts: list[RenderableType] = [Text(head, style="bold")]
    parts += [Text(f"{about}: {summary} [{source}]") for about, summary, source in described(cell)]
    if not cell.possible:
        return [*parts, Text("no scenario at hand can have the method")]
    for one in cell.against:
        for way in one.ways:
            name = f"{way.knob or 'as it is'} against {one.against}"
            said = f"{way.vote.sign or 'blank'}: less in {way.vote.less:.0%}, more in {way.vote.more:.0%} of {way.vote.count}"
            parts.append(_way_table(way, f"{name}: {said}", row.unit))
    return parts


def described(cell: Cell) -> list[tuple[str, str, str]]:
    """What method and bottleneck are, with their sources."""
    from moesim.matrix.bottlenecks import bottlenecks as known_rows
    from moesim.matrix.methods import methods as known_columns

    found = []
    for word, registry, name in (("method", known_columns, cell.method), ("bottleneck", known_rows, cell.bottleneck)):
        entry = next(one for one in registry.entries() if one.name == name)
        found.append((word, entry.summary, entry.source))
    return found


def _way_table(way: Way, title: str, unit: str) -> Table:
    shown = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ("scenario", "without", "with"):
        shown.add_column(name, justify="left" if name == "scenario" else "right")
    shown.add_column("terms without > with")
    for sample in way.samples[:MOST]:
        terms = [
            f"{name} {quantity(float(sample.off_terms[name][0]), unit) if name in sample.off_terms else 0} > "
            f"{quantity(float(value[0]), unit)}"
            for name, value in sample.on_terms.items()
            if float(value[0]) or (name in sample.off_terms and float(sample.off_terms[name][0]))
        ]
        shown.add_row(
            sample.situation,
            quantity(float(sample.off[0]), unit),
            quantity(float(sample.on[0]), unit),
            "; ".join(terms),
        )
    if len(way.samples) > MOST:
        shown.caption = f"the first of {len(way.samples)} situations, their first scenario; --json has all"
    return shown
