"""A grid of estimates as a ranked table, with what each axis does, and as rows of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.words import changes_in_words, counted, word
from moesim.cost.pipeline import COMMUNICATION
from moesim.report.compare import change
from moesim.report.estimate import NAMES, gibibytes, seconds
from moesim.report.frames import write_frame
from moesim.result import Estimate
from moesim.studies.knees import TOLERANCE, Curve
from moesim.studies.sweep import Row, Sweep, exposed_share

SHOWN = ("exposed", "terms", "memory", "routing", "interval")
"""What can be shown besides: exposed communication, terms of the step and memory by class, load of the hottest rank with
the share of rows that is dropped, ends of the interval."""
REFUSALS = 12
"""Ways to be refused that are listed."""
Cell = tuple[str, Callable[[Estimate], str]]
"""A further column: its name, and what it says of an estimate."""


def sweep_table(found: Sweep, top: int | None, show: Sequence[str] = ()) -> RenderableType:
    """The best rows, why the others lose, what is refused, and the curve of each axis."""
    able = [(row, row.answer) for row in found.rows if row.answer is not None][:top]
    answers = [answer for _, answer in able]
    extra = CELLS["interval"](answers) if "interval" in show else []
    table = _table(found, _title(found))
    for name in ("step", "tokens/s", "MFU", "exposed", "GiB", *(name for name, _ in extra)):
        table.add_column(name, justify="right")
    table.add_column("binding")
    table.add_column("loses by", overflow="fold")
    for row, answer in able:
        table.add_row(
            *(Text(word(value)) for value in row.case.values()),
            seconds(answer.step_time_s),
            f"{answer.tokens_per_s_per_gpu:,.0f}",
            f"{answer.mfu:.1%}",
            f"{exposed_share(answer):.1%}",
            gibibytes(answer.memory.peak_bytes),
            *(cell(answer) for _, cell in extra),
            answer.binding["resource"],
            _reason(found, row, answer),
            style="" if row.fits else "red",
        )
    table.caption = "tokens/s per GPU; exposed: what of the step waits for communication"
    table.caption_justify = "left"
    lines = [Text(line, style="red") for line in _refusals(found)]
    more = [_more(found, able, name) for name in TITLES if name in show]
    return Group(table, *lines, *more, *map(_curve, found.curves))


def _table(found: Sweep, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in short_names(tuple(found.axes)):
        table.add_column(name, overflow="fold")
    return table


def _more(found: Sweep, able: Sequence[tuple[Row, Estimate]], what: str) -> Table:
    table = _table(found, TITLES[what])
    cells = CELLS[what]([answer for _, answer in able])
    for name, _ in cells:
        table.add_column(name, justify="right")
    for row, answer in able:
        table.add_row(*(Text(word(value)) for value in row.case.values()), *(cell(answer) for _, cell in cells))
    return table


TITLES = {
    "exposed": "what of the step waits for each class of communication",
    "terms": "terms of the step, on the rank that finishes last",
    "memory": "memory of the fullest rank, GiB",
    "routing": "rows of the hottest rank over the mean, and the share of all rows that is dropped",
}
"""Tables of further columns."""


def _exposed(answers: Sequence[Estimate]) -> list[Cell]:
    def cell(name: str) -> Callable[[Estimate], str]:
        return lambda answer: f"{seconds(answer.exposed_s[name])} {answer.exposed_s[name] / answer.step_time_s:.0%}"

    return [(name, cell(name)) for name in COMMUNICATION] if answers else []


def _terms(answers: Sequence[Estimate]) -> list[Cell]:
    def cell(name: str) -> Callable[[Estimate], str]:
        return lambda answer: seconds(answer.breakdown_s.get(name, 0.0))

    return [(name, cell(name)) for name in NAMES if any(one.breakdown_s.get(name) for one in answers)]


def _memory(answers: Sequence[Estimate]) -> list[Cell]:
    def cell(name: str) -> Callable[[Estimate], str]:
        return lambda answer: gibibytes(_peak(answer)[name])

    classes = dict.fromkeys(name for answer in answers for name, value in _peak(answer).items() if value)
    return [(name.removesuffix("_bytes"), cell(name)) for name in classes]


def _routing(answers: Sequence[Estimate]) -> list[Cell]:
    def load(answer: Estimate) -> str:
        return f"{answer.routing['hottest_rank_load']:.2f}" if answer.routing else ""

    def dropped(answer: Estimate) -> str:
        share = answer.routing and answer.routing["dropped_share"]
        return "?" if answer.routing and share is None else f"{share or 0.0:.1%}"

    return [("hottest rank", load), ("dropped", dropped)] if any(one.routing for one in answers) else []


def _interval(_: Sequence[Estimate]) -> list[Cell]:
    return [("90 % interval", lambda answer: f"{seconds(answer.low_s)}-{seconds(answer.high_s)}")]


CELLS: dict[str, Callable[[Sequence[Estimate]], list[Cell]]] = {
    "exposed": _exposed,
    "terms": _terms,
    "memory": _memory,
    "routing": _routing,
    "interval": _interval,
}


def _peak(answer: Estimate) -> dict[str, float]:
    stage = answer.memory.stages[answer.memory.peak_stage]
    return {name: value for name, value in stage.items() if name != "peak_bytes"}


def _title(found: Sweep) -> str:
    fits, able = (sum(row.fits for row in found.rows), sum(row.answer is not None for row in found.rows))
    stopped = "" if len(found.rows) == found.total else f"stopped after {len(found.rows):,}; "
    order = "most tokens/s per GPU" if found.objective == "throughput" else f"least {found.objective}"
    return f"{stopped}{counted(found.total, 'combination')}: {able:,} legal, {fits:,} fit; {order} first"


def _reason(found: Sweep, row: Row, answer: Estimate) -> str:
    if not row.fits:
        classes = _peak(answer)
        most = max(classes, key=lambda name: classes[name])
        rank = f"rank {answer.memory.peak_stage} of {gibibytes(answer.memory.capacity_bytes)} GiB"
        return f"DOES NOT FIT: {rank}, {gibibytes(classes[most])} of {most.removesuffix('_bytes')}"
    if row is found.best:
        return ""
    terms = ", ".join(f"{name} {change(value)}" for name, value in found.largest(row))
    return f"{change(sum(found.loses_by(row).values()))}: {terms}" if terms else "as good"


def _refusals(found: Sweep) -> list[str]:
    """A line for each way of being refused, with the combinations that are."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in found.rows:
        if row.answer is None:
            groups.setdefault(row.refused, []).append(row)
    lines = []
    for told, rows in groups.items():
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        lines.append(f"refused {changes_in_words(rows[0].case, ' ')}{more}: {'; '.join(told)}")
    rest = lines[REFUSALS:]
    return lines[:REFUSALS] + ([f"{len(rest)} more ways to be refused: --json lists all"] if rest else [])


def short_names(paths: Sequence[str]) -> list[str]:
    """The last words of paths, where they tell them apart.

    Examples
    --------
    >>> short_names(["ep", "transports.deepep.num_sms"])
    ['ep', 'num_sms']
    """
    short = [path.rpartition(".")[2] for path in paths]
    return short if len(set(short)) == len(short) else list(paths)


def _curve(one: Curve) -> RenderableType:
    table = Table(title=f"{one.name}, each at the best of the others", title_justify="left")
    for name in (one.name, "step", "tokens/s", "costs more", "exposed", "GiB", "fit", "binding"):
        table.add_column(name, justify="left" if name in (one.name, "binding") else "right")
    best = min(one.costs)
    for value, cost, told in zip(one.values, one.costs, one.told, strict=True):
        counts = f"{told['fitting']} of {told['rows']}"
        if not math.isfinite(cost):
            table.add_row(Text(word(value)), "", "", "", "", "", counts, "")
            continue
        table.add_row(
            Text(word(value)),
            seconds(told["step_time_s"]),
            f"{told['tokens_per_s_per_gpu']:,.0f}",
            "" if cost == best else f"{cost / best - 1:.1%}",
            f"{told['exposed_share']:.1%}",
            gibibytes(told["peak_bytes"]),
            counts,
            told["binding"],
            style="bold" if value == one.optimum else "",
        )
    return Group(table, Text(verdict(one), style="bold"))


def verdict(one: Curve) -> str:
    """The optimum of an axis, and beyond which values it costs more."""
    if one.optimum is None:
        return f"{one.name}: nothing fits"
    told = f"{one.name}: best at {word(one.optimum)}"
    within = f"within {TOLERANCE:.0%}"
    if len(one.plateau) == len(one.values):
        return f"{told}; all values are {within} of it"
    if len(one.plateau) == 1:
        return f"{told}; every other value costs more than {TOLERANCE:.0%} more, or does not fit"
    words = list(map(word, one.plateau))
    if one.knees:
        knees = " and ".join(map(word, one.knees))
        return f"{told}; {within} from {words[0]} to {words[-1]}, knee at {knees}"
    return f"{told}; {within}: {', '.join(words)}"


def write_rows(path: Path, found: Sweep) -> None:
    """Write a row for each combination: values, answers, exposed times and terms, what refuses it."""
    rows = []
    for row in found.rows:
        told = found.row_dict(row)
        flat: dict[str, Any] = {name: word(value) for name, value in row.case.items()} | {"state": told["state"]}
        for name, value in told.items():
            if name in ("exposed_s", "breakdown_s", "slower_s"):
                flat |= {f"{name.removesuffix('_s')}_{part}_s": one for part, one in value.items()}
            elif name in ("refused", "rules"):
                flat[name] = "; ".join(value)
            elif name == "routing":
                flat |= value or {}
            elif name not in ("set", "state"):
                flat[name] = value
        rows.append(flat)
    write_frame(path, rows)
