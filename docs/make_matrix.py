"""Write docs/matrix.md and docs/figures/matrix.svg: ``python docs/make_matrix.py``.

The derived matrix beside the published one: cells that agree, every cell that does not with its evidence and a judgement
(docs/matrix_judgements.csv, which nothing else reads), how stable it is, and what it rests on.
"""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from matrix_second import second_matrix, second_set

import moesim.matrix.rule as rule
from moesim.matrix import published
from moesim.matrix.answer import Answer, answer
from moesim.matrix.bottlenecks import bottlenecks, rows
from moesim.matrix.cells import Cell, Matrix, Sample, Way, decided, restricted
from moesim.matrix.ensemble import BASE, COLUMNS, GRID, SEQUENCE, SKEW, Ensemble, situations
from moesim.matrix.methods import columns, methods
from moesim.report.matrix_figure import draw

DOCS = Path(__file__).parent
PAGE = DOCS / "matrix.md"
FIGURE = DOCS / "figures" / "matrix.svg"
JUDGEMENTS = DOCS / "matrix_judgements.csv"
TRIED = DOCS / "matrix_tried.csv"
OTHER_SEEDS = (1, 2)
RATIOS_OF_TIMES = ("compute-throughput", "small-gemms")
KINDS = {
    "opposite": "Opposite signs",
    "missing": "Published, not derived",
    "extra": "Derived, not published",
    "other": "A sign where the other has a triangle",
}


def main() -> None:
    """Derive, compare, write."""
    start = time.process_time()
    found = derived(Ensemble())
    seconds = time.process_time() - start
    draw(found, FIGURE)
    others = {seed: derived(Ensemble(seed=seed)).matrix for seed in OTHER_SEEDS}
    PAGE.write_text(page(found, seconds, others, second_matrix()))


def derived(ensemble: Ensemble) -> Answer:
    """The published question over an ensemble."""
    return answer(situations(ensemble), columns(), rows())


def judgements() -> dict[tuple[str, str], tuple[str, str]]:
    """Cause and judgement of differing cells, by method and bottleneck."""
    with JUDGEMENTS.open(encoding="utf-8", newline="") as lines:
        return {(row["method"], row["bottleneck"]): (row["cause"], row["judgement"]) for row in csv.DictReader(lines)}


def page(found: Answer, seconds: float, others: dict[int, Matrix], second: Matrix) -> str:
    """The page."""
    told = found.agreement
    assert told is not None, "the published matrix is at hand"
    parts = [
        "# The trade-off matrix, derived",
        "",
        f"Written by `python docs/make_matrix.py`. Published: {published.SOURCE}. `moesim matrix` derives the same, "
        "`moesim matrix --cell METHOD,BOTTLENECK` shows what is behind a cell.",
        "",
        "![Derived trade-off matrix](figures/matrix.svg)",
        "",
        "## Agreement",
        "",
        *_agreement(found, seconds),
        "## How a sign comes about",
        "",
        *_rule(),
        "## What it rests on",
        "",
        *_ensemble(found),
        "## Stability",
        "",
        *_stability(found.matrix, others),
        "## Cells that differ",
        "",
        "Shares are those of the scenarios in which there is less, or more, with the method; sizes with over without.",
        "",
        *_differences(found),
        "## The second set",
        "",
        *second_set(second),
        "## Methods",
        "",
        *_methods(),
        "## Bottlenecks",
        "",
        *_bottlenecks(),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _agreement(found: Answer, seconds: float) -> list[str]:
    told = found.agreement
    assert told is not None
    lines = [
        "| | |",
        "|---|---:|",
        f"| cells equal | {told.equal} of {told.cells} |",
        f"| of those that are not blank | {told.equal_signs} of {told.signs} |",
    ]
    lines += [f"| {title.lower()} | {told.count(kind)} |" for kind, title in KINDS.items()]
    blank = told.cells - told.signs
    return [
        *lines,
        f"| processor seconds | {seconds:.0f} |",
        "",
        f"An empty matrix would agree in {blank} cells and in none that is not blank. *{published.COMPLEXITY}* is no "
        "quantity: the figure shows the report's judgement, and no cell of it counts above.",
        "",
        "Rows, pairs and knobs were written with the published matrix at hand: agreement is a check of the arithmetic "
        "behind it, not a prediction. What was not done is to change a reading for one cell: a row reads the same "
        "quantity under every method, a method's pairs and knobs serve whole families of rows, and one rule makes all signs.",
        "",
    ]


def _rule() -> list[str]:
    return [
        "1. A method is set against something (a *pair*), in the ways there are to have it (*knobs*). Both sides of a pair "
        "are the same step but for what the pair names.",
        "2. In each scenario the quantity of the row is read on both sides. Where traffic makes it (buffers, traffic between "
        "nodes, exposed communication, contention, bubbles from hand-offs), only the classes of traffic count that the method makes or "
        "changes; the others are frozen.",
        "   The clock of the GPU is that of the situation on both sides, whatever a method does to its power.",
        f"3. A change below {rule.TOLERANCE:.1%} is none; of seconds that are made of prices of kernels and messages, one below "
        f"{rule.PRICED_TOLERANCE:.0%}. Scenarios in which neither side has any of it do not count.",
        f"4. A way says nothing where at most {rule.REST:.0%} of its scenarios change; + (or -) where {rule.SHARE:.0%} of those "
        "that change have less (or more), else a triangle.",
        "5. Ways that disagree make a triangle, and so do pairs of which each changes something.",
        "6. What has a row of its own is counted there once: casts, layout passes, sums of gradients and rows that align "
        "segments are no kernels of the model, bytes that shrink alike on all ranks are no imbalance.",
        "",
        "Readings that were tried, and what became of them. They were looked for where the two matrices differed, so that "
        "agreement is no test of them; what each rests on stands beside it.",
        "",
        *_tried(),
    ]


def _tried() -> list[str]:
    with TRIED.open(encoding="utf-8", newline="") as lines:
        told = [f"| {row['outcome']} | {row['reading']} | {row['why']} |" for row in csv.DictReader(lines)]
    return ["| | reading | why |", "|---|---|---|", *told, ""]


def _ensemble(found: Answer) -> list[str]:
    grid = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in GRID.items())
    degrees = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in COLUMNS.items())
    skewed = Ensemble().skewed
    return [
        f"{found.matrix.scenarios} scenarios: {len(found.situations)} situations, each value of the grid as often as any "
        f"other, with every legal pair of the degrees as a batch of columns. Grid: {grid}. Degrees: {degrees}, sequences of "
        f"{SEQUENCE}. {skewed} situations have experts of unequal popularity (`{SKEW}`).",
        "",
        "Classes of traffic are part of what a method is. Recomputation has none: where a routed layer is repeated its legs "
        "show under traffic and permutations, as in the report; were they its class, buffers would agree and traffic "
        "between nodes, exposed communication, contention and load imbalance would not.",
        "",
        "What a method is not asked for: " + ", ".join(f"`{name}: {value}`" for name, value in BASE.items()) + ".",
        "",
    ]


def _stability(matrix: Matrix, others: dict[int, Matrix]) -> list[str]:
    names = list(dict.fromkeys(_situations(matrix)))
    generator = np.random.default_rng(0)
    lines = ["| | cells that change |", "|---|---:|"]
    for seed, other in others.items():
        lines.append(f"| seed {seed} in place of 0 | {_changed(matrix, other)} |")
    for number in (1, 2):
        half = set(generator.permutation(names)[: len(names) // 2])
        lines.append(f"| one half of the situations, draw {number} | {_changed(matrix, restricted(matrix, half))} |")
    lines.append(f"| changes of rates below 2 % count as none too | {_changed(matrix, _coarser(matrix))} |")
    return [*lines, "", *_coarse_agreement(matrix)]


def _situations(matrix: Matrix) -> list[str]:
    ways = (way for cell in matrix.cells.values() for one in cell.against for way in one.ways)
    return [sample.situation for way in ways for sample in way.samples]


def _changed(matrix: Matrix, other: Matrix) -> str:
    count = sum(cell.sign != other.cells[key].sign for key, cell in matrix.cells.items())
    return f"{count} of {len(matrix.cells)} ({count / len(matrix.cells):.1%})"


def _coarser(matrix: Matrix) -> Matrix:
    """The matrix where changes below 2 % of a ratio of times are none too."""
    cells = {}
    for key, cell in matrix.cells.items():
        coarse = cell.bottleneck in RATIOS_OF_TIMES
        told = [
            (one.against, [(way.knob, [_coarse(each) if coarse else each for each in way.samples]) for way in one.ways])
            for one in cell.against
        ]
        cells[key] = decided(cell.method, cell.bottleneck, told)
    return Matrix(matrix.methods, matrix.bottlenecks, cells, matrix.scenarios)


def _coarse(sample: Sample) -> Sample:
    small = np.abs(sample.on - sample.off) <= rule.PRICED_TOLERANCE * np.maximum(np.abs(sample.on), np.abs(sample.off))
    return replace(sample, signs=np.where(small & (np.abs(sample.signs) == 1), 0, sample.signs))


def _coarse_agreement(matrix: Matrix) -> list[str]:
    told = published.agreement(_coarser(matrix), published.read())
    return [
        f"With 2 % for rates too, {told.equal} cells are equal, {told.equal_signs} of them not blank, {told.count('opposite')} opposite.",
        "",
    ]


def _differences(found: Answer) -> list[str]:
    told, known = found.agreement, judgements()
    assert told is not None
    lacking = [(one.method, one.bottleneck) for one in told.differences if (one.method, one.bottleneck) not in known]
    if lacking:
        raise SystemExit(f"no judgement in {JUDGEMENTS.name} for " + "; ".join(", ".join(key) for key in lacking))
    lines = []
    for kind, title in KINDS.items():
        listed = [one for one in told.differences if one.kind == kind]
        if not listed:
            continue
        lines += [f"### {title} ({len(listed)})", ""]
        lines += [
            "| method | bottleneck | published | derived | evidence | cause | judgement |",
            "|---|---|:-:|:-:|---|---|---|",
        ]
        for one in listed:
            cause, text = known[one.method, one.bottleneck]
            cell = found.matrix.cells[one.method, one.bottleneck]
            names = f"{methods.get(one.method).title} | {bottlenecks.get(one.bottleneck).title}"
            signs = f"{one.published or 'blank'} | {one.derived or 'blank'}"
            lines.append(f"| {names} | {signs} | {evidence(cell)} | {cause} | {text} |")
        lines.append("")
    return lines


def evidence(cell: Cell) -> str:
    """What each way against each thing says, in a line."""
    parts = []
    for one in cell.against:
        said = [f"{way.knob or 'all'}: {_shares(way.vote)}{_size(way)}" for way in one.ways if way.samples]
        parts.append(f"against {one.against}: " + "; ".join(dict.fromkeys(said)))
    return ". ".join(parts) or "nothing to read"


def _shares(vote: rule.Vote) -> str:
    if not vote.count:
        return "none of it on either side"
    return f"less {vote.less:.0%}, more {vote.more:.0%}"


def _size(way: Way) -> str:
    ratios = [sample.on[sample.off > 0] / sample.off[sample.off > 0] for sample in way.samples]
    joined = np.concatenate([*ratios, np.zeros(0)])
    return f", x{np.median(joined):.3g}" if len(joined) else ""


def _methods() -> list[str]:
    lines = ["| method | name | set against | ways |", "|---|---|---|---|"]
    for name in columns(second=True):
        method = methods.get(name)
        against = "; ".join(
            pair.against + (f" ({', '.join(pair.families)} only)" if pair.families else "") for pair in method.pairs
        )
        ways = "; ".join(knob.name for knob in method.knobs if knob.name)
        lines.append(f"| {method.title}{' (second set)' if method.second else ''} | `{name}` | {against} | {ways} |")
    return [*lines, ""]


def _bottlenecks() -> list[str]:
    entries = {entry.name: entry for entry in bottlenecks.entries()}
    lines = ["| bottleneck | name | family | unit | reads |", "|---|---|---|:-:|---|"]
    for name in rows():
        row = bottlenecks.get(name)
        lines.append(f"| {row.title} | `{name}` | {row.family} | {row.unit} | {entries[name].summary} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
