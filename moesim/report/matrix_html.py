"""The trade-off matrix for notebooks: signs over many scenarios, sizes for a scenario of one's own."""

from __future__ import annotations

from rich.console import RenderableType

from moesim.matrix.answer import Answer
from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.methods import methods
from moesim.report.html import Column, Row, fragment
from moesim.report.matrix import LEGEND, sign_of, size_of, table


def html(found: Answer) -> str:
    """A row a bottleneck, a column a method."""
    matrix, told = found.matrix, sign_of if found.own is None else size_of
    columns = [Column("", number=False), *(Column(methods.get(name).title) for name in matrix.methods)]
    rows = [
        Row([bottlenecks.get(row).title, *(told(matrix.cells[name, row]) for name in matrix.methods)])
        for row in matrix.bottlenecks
    ]
    if found.own is None:
        title, note = f"{matrix.scenarios} scenarios in {len(found.situations)} situations", f"{LEGEND}."
    else:
        title, note = found.own, "What there is of each bottleneck with the method, over without; empty: the same."
    return fragment("table", title=title, columns=columns, rows=rows, notes=[note])


def renderable(found: Answer) -> RenderableType:
    """The same for a terminal."""
    return table(found, size=found.own is not None)
