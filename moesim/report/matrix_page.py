"""The trade-off matrix as a page of its own in which each cell opens its evidence."""

from __future__ import annotations

from html import escape

from moesim.base.words import counted
from moesim.matrix.answer import Answer
from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.cells import Against, Cell, Sample, Way
from moesim.matrix.methods import methods
from moesim.matrix.published import COMPLEXITY
from moesim.matrix.rule import BLANK, DEPENDS, MINUS, PLUS, SHOWN
from moesim.report.matrix import LEGEND, MOST, described, quantity, size_of

CLASSES = {PLUS: "plus", MINUS: "minus", DEPENDS: "depends", BLANK: "blank"}
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #222; }
table.matrix { border-collapse: collapse; }
table.matrix th { font-weight: 600; }
table.matrix thead th { height: 8.5rem; vertical-align: bottom; padding: 0; width: 2.1rem; }
table.matrix thead th span { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; }
table.matrix tbody th { text-align: right; padding: 0 .6rem; white-space: nowrap; position: sticky; left: 0; background: #fff; }
table.matrix td { border: 1px solid #e3e3e3; padding: 0; text-align: center; min-width: 2rem; height: 1.7rem; }
table.matrix td a { display: block; text-decoration: none; color: inherit; line-height: 1.7rem; font-weight: 700; }
table.matrix td a:hover, table.matrix td a:focus { outline: 2px solid #222; }
.plus { background: #9ecae9; color: #08306b; } .minus { background: #f6b26b; color: #7f2704; }
.depends { background: #d9d9d9; } .absent { background: #f2f2f2; color: #777; font-size: 11px; }
.differs { box-shadow: inset 0 0 0 2px #222; }
section { display: none; border-top: 2px solid #222; margin-top: 1.5rem; padding-top: .5rem; }
section:target { display: block; }
section table { border-collapse: collapse; margin: .3rem 0 1rem; }
section td, section th { border-bottom: 1px solid #ddd; padding: .15rem .6rem; text-align: left; vertical-align: top; }
section td.number { text-align: right; white-space: nowrap; }
p.note { color: #555; }
div.scroll { overflow-x: auto; }
@media (max-width: 620px) {
  body { margin: 1rem .7rem; }
  table.matrix tbody th { white-space: normal; min-width: 7.5rem; font-size: 12px; padding: 0 .4rem 0 0; }
  section td, section th { padding: .15rem .4rem; }
}
"""


def page(found: Answer) -> str:
    """The page: the matrix, and a section for each cell that its link opens."""
    published = {}
    if found.agreement is not None:
        published = {(one.method, one.bottleneck): one.published for one in found.agreement.differences}
    title = f"Trade-off matrix: {found.own or 'published question'}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{escape(_about(found))} Each cell opens its evidence below the table.</p>',
        _matrix(found, published),
        *(_section(cell, published.get(key)) for key, cell in found.matrix.cells.items()),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _about(found: Answer) -> str:
    text = f"{counted(found.matrix.scenarios, 'scenario')}; {LEGEND}."
    if found.agreement is not None:
        told = found.agreement
        text += f" Framed cells differ from the published matrix: {told.equal} of {told.cells} are equal."
    return text


def _matrix(found: Answer, published: dict[tuple[str, str], str]) -> str:
    heads = "".join(f"<th><span>{escape(methods.get(name).title)}</span></th>" for name in found.matrix.methods)
    rows = []
    for row in found.matrix.bottlenecks:
        cells = [_cell(found.matrix.cells[method, row], (method, row) in published) for method in found.matrix.methods]
        rows.append(f"<tr><th>{escape(bottlenecks.get(row).title)}</th>{''.join(cells)}</tr>")
    if found.complexity:
        signs = [found.complexity.get(name, BLANK) for name in found.matrix.methods]
        cells = [
            f'<td class="{CLASSES[sign]}" title="the report\'s judgement, not derived">{sign}</td>' for sign in signs
        ]
        rows.append(f"<tr><th><em>{COMPLEXITY} (judged, not derived)</em></th>{''.join(cells)}</tr>")
    body = f"<thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll" id="matrix"><table class="matrix">{body}</table></div>'


def _cell(cell: Cell, differs: bool) -> str:
    kind = CLASSES[cell.sign] if cell.possible else "absent"
    shown = (cell.sign or "&nbsp;") if cell.possible else "n/a"
    size = size_of(cell)
    title = escape(
        f"{methods.get(cell.method).title}, {bottlenecks.get(cell.bottleneck).title}: {SHOWN[cell.sign]} {size}"
    )
    mark = " differs" if differs else ""
    return f'<td class="{kind}{mark}"><a href="#{_anchor(cell)}" title="{title.strip()}">{shown}</a></td>'


def _anchor(cell: Cell) -> str:
    return f"{cell.method}--{cell.bottleneck}"


def _section(cell: Cell, published: str | None) -> str:
    row = bottlenecks.get(cell.bottleneck)
    head = f"{methods.get(cell.method).title} and {row.title}: {cell.sign or 'blank'} ({SHOWN[cell.sign]})"
    parts = [f'<section id="{_anchor(cell)}"><h2>{escape(head)}</h2>']
    if published is not None:
        parts.append(f"<p>The published matrix has: <strong>{escape(published) or 'blank'}</strong>.</p>")
    parts += [
        f"<p>{about}: {escape(summary)} <small>[{escape(source)}]</small></p>"
        for about, summary, source in described(cell)
    ]
    if not cell.possible:
        parts.append("<p>No strategy with the method is legal here.</p>")
    parts += [_way(one, way, row.unit) for one in cell.against for way in one.ways if way.samples]
    return "\n".join([*parts, '<p><a href="#matrix">Back to the matrix</a></p></section>'])


def _way(one: Against, way: Way, unit: str) -> str:
    said = f"{way.vote.sign or 'blank'}, less in {way.vote.less:.0%} and more in {way.vote.more:.0%} of {counted(way.vote.count, 'scenario')}"
    head = f"{way.knob or 'as it is'} against {one.against}: {said}"
    rows = "".join(_sample(sample, unit) for sample in way.samples[:MOST])
    left = len(way.samples) - MOST
    more = f'<p class="note">and {left} more situations</p>' if left > 0 else ""
    columns = "<tr><th>first scenario of</th><th>without</th><th>with</th><th>terms, without and with</th></tr>"
    return f'<h3>{escape(head)}</h3><div class="scroll"><table>{columns}{rows}</table></div>{more}'


def _sample(sample: Sample, unit: str) -> str:
    terms = []
    for name, value in sample.on_terms.items():
        off = float(sample.off_terms[name][0]) if name in sample.off_terms else 0.0
        if off or float(value[0]):
            terms.append(f"{name}: {quantity(off, unit)}, {quantity(float(value[0]), unit)}")
    numbers = [f'<td class="number">{escape(quantity(float(one[0]), unit))}</td>' for one in (sample.off, sample.on)]
    return f"<tr><td>{escape(sample.situation)}</td>{''.join(numbers)}<td>{escape('; '.join(terms))}</td></tr>"
