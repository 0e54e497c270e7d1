"""Studies as HTML: searches, comparisons and curves of scaling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from moesim.base.words import counted, word
from moesim.report.compare import change, comparison_table, headings
from moesim.report.estimate import NAMES, gibibytes, seconds
from moesim.report.html import Column, Row, fragment
from moesim.report.palette import SHORT_NAMES, TERM_COLOURS
from moesim.report.scaling import scaling_table
from moesim.report.search import RULES, TERMS, search_table, stopped
from moesim.report.sweep import short_names, sweep_table, verdict
from moesim.report.whatif import whatif_table
from moesim.result import Estimate
from moesim.studies.compare import Comparison
from moesim.studies.scaling import Scaling
from moesim.studies.search.answer import Found, Search
from moesim.studies.sweep import Row as Tried
from moesim.studies.sweep import Sweep, exposed_share
from moesim.studies.whatif import WhatIf

ROWS = 20
"""Rows of a sweep that are shown."""


@singledispatch
def html(found: Any) -> str:
    """A study for a notebook."""
    raise TypeError(f"nothing shows a {type(found).__name__}")


@singledispatch
def renderable(found: Any) -> RenderableType:
    """A study for a terminal."""
    raise TypeError(f"nothing shows a {type(found).__name__}")


@html.register
def _(found: Search) -> str:
    names = [name for name, values in found.axes.items() if len(values) > 1]
    fields = tuple(axis.name for axis in found.space.axes)
    priced = found.jobs[0].price is not None
    columns = [*names, "step", "90 % interval", "GiB", *(["tokens/$"] if priced else [])]
    rows = []
    for one in found.top:
        varied = one.to_dict(fields)["varied"]
        interval = f"{seconds(one.answer.low_s)} to {seconds(one.answer.high_s)}"
        cells = [*(word(varied[name]) for name in names), seconds(one.plan.step_time_s), interval]
        cells += [gibibytes(one.plan.peak_bytes), *([f"{one.tokens_per_dollar:,.0f}"] if priced else [])]
        cells += [one.answer.binding["resource"], _slower(found, one)]
        rows.append(Row(cells, strong=one is found.top[0]))
    notes = [] if found.complete else [stopped(found)]
    refused = list(found.refused.items())
    listed = "; ".join(f"{rule} {count:,}" for rule, count in refused[:RULES])
    more = f"; {len(refused) - RULES} more rules {sum(count for _, count in refused[RULES:]):,}"
    notes += [f"Refused by: {listed}{more if len(refused) > RULES else ''}."] if refused else []
    title = f"{counted(found.plans_total, 'plan')}: {found.plans_legal:,} legal, {found.plans_fitting:,} known to fit"
    shown = [*map(Column, columns), Column("binding", False), Column("slower than the best by", False)]
    return fragment("table", title=title, columns=shown, rows=rows, notes=notes)


def _slower(found: Search, one: Found) -> str:
    terms = [(name, delta) for name, delta in found.loses_by(one).items() if delta > 0][:TERMS]
    return "" if one is found.top[0] else ", ".join(f"{SHORT_NAMES[name]} +{seconds(delta)}" for name, delta in terms)


@html.register
def _(found: Comparison) -> str:
    cases = [(case.name, case.answer) for case in found.cases if case.answer is not None]
    varied, names = headings([name for name, _ in cases])
    answers = [answer for _, answer in cases]
    longest = max(answer.step_time_s for answer in answers)
    bars = [
        {"name": name, "parts": stack(answer, longest), "size": _beside(answer, found.base), "peak": False}
        for name, answer in zip(names, answers, strict=True)
    ]
    occurring = [term for term in TERM_COLOURS if any(answer.breakdown_s.get(term) for answer in answers)]
    base, *others = (answer.breakdown_s for answer in answers)
    rows = [
        Row([NAMES[term], seconds(base.get(term, 0.0)), *(_change(one, base, term) for one in others)])
        for term in occurring
    ]
    rows += [
        Row(["step", *(seconds(one.step_time_s) for one in answers)], strong=True),
        Row(["peak memory, GiB", *(gibibytes(one.memory.peak_bytes) for one in answers)]),
        Row(["binding", *(one.binding["resource"] if one.feasible else "DOES NOT FIT" for one in answers)]),
    ]
    return fragment(
        "comparison",
        title="The step" + (f" by {varied}" if varied else ""),
        bars=bars,
        legend=[(NAMES[term], TERM_COLOURS[term]) for term in occurring],
        columns=[Column("", False), *map(Column, names)],
        rows=rows,
        notes=[f"refused {case.name}: {line}" for case in found.cases for line in case.refused],
    )


def stack(answer: Estimate, longest: float) -> list[dict[str, Any]]:
    """A step as a stack of its terms. [per cent of the longest]"""
    return [
        {
            "name": NAMES[term],
            "colour": colour,
            "width": 100 * answer.breakdown_s[term] / longest,
            "size": seconds(answer.breakdown_s[term]),
        }
        for term, colour in TERM_COLOURS.items()
        if answer.breakdown_s.get(term)
    ]


def _beside(answer: Estimate, base: Estimate) -> str:
    step = seconds(answer.step_time_s)
    return step if answer is base else f"{step} ({answer.step_time_s / base.step_time_s - 1:+.1%})"


def _change(after: dict[str, float], before: dict[str, float], term: str) -> str:
    return change(after.get(term, 0.0) - before.get(term, 0.0))


@html.register
def _(found: Scaling) -> str:
    columns = ("nodes", "GPUs", "batch", "step", "tokens/s", "MFU", "efficiency", "bubble", "GiB")
    rows = [
        Row(
            [
                str(point.nodes),
                f"{point.gpus:,}",
                f"{point.global_batch:,}",
                seconds(point.answer.step_time_s),
                f"{point.tokens_per_s:,.0f}",
                f"{point.answer.mfu:.1%}",
                f"{point.efficiency:.1%}",
                f"{point.answer.bubble_fraction:.1%}",
                gibibytes(point.answer.memory.peak_bytes),
                point.answer.binding["resource"] if point.answer.feasible else "DOES NOT FIT",
            ]
        )
        for point in found
        if point.answer is not None
    ]
    refused = [f"{point.nodes} nodes refused: {'; '.join(point.refused)}" for point in found if point.refused]
    kept = "the same global batch" if found.fixed == "batch" else "the same batch a GPU"
    notes = [*refused, "Efficiency: tokens/s per GPU against the first row."]
    shown: Sequence[Column] = [*map(Column, columns), Column("binding", False)]
    return fragment("table", title=f"Scaling at {kept}", columns=shown, rows=rows, notes=notes)


@html.register
def _(found: Sweep) -> str:
    names = short_names(tuple(found.axes))
    rows = []
    for row in found.rows[:ROWS]:
        answer = row.answer
        if answer is None:
            continue
        cells = [*(word(value) for value in row.case.values()), seconds(answer.step_time_s)]
        cells += [f"{answer.tokens_per_s_per_gpu:,.0f}", f"{answer.mfu:.1%}", f"{exposed_share(answer):.1%}"]
        cells += [gibibytes(answer.memory.peak_bytes), answer.binding["resource"], _losing(found, row)]
        rows.append(Row(cells, strong=row is found.best))
    states = [row.state for row in found.rows]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    notes = [verdict(curve) for curve in found.curves]
    notes += [f"The best {ROWS} of them."] if len(rows) == ROWS else []
    columns = [*map(Column, (*names, "step", "tokens/s per GPU", "MFU", "exposed", "GiB"))]
    columns += [Column("binding", False), Column("loses by", False)]
    title = f"{counted(found.total, 'combination')}: {counts}"
    return fragment("table", title=title, columns=columns, rows=rows, notes=notes)


def _losing(found: Sweep, row: Tried) -> str:
    if not row.fits:
        return "DOES NOT FIT"
    return ", ".join(f"{SHORT_NAMES[name]} {change(value)}" for name, value in found.largest(row))


@html.register
def _(found: WhatIf) -> str:
    if found.interaction_s is None:
        return html(found.comparison)
    told = f"All at once: {change(found.interaction_s)} beside the sum of the changes."
    return html(found.comparison) + fragment("table", title=told, columns=[], rows=[], notes=[])


@renderable.register
def _(found: Sweep) -> RenderableType:
    return sweep_table(found, ROWS)


@renderable.register
def _(found: WhatIf) -> RenderableType:
    return whatif_table(found)


@renderable.register
def _(found: Search) -> RenderableType:
    return search_table(found)


@renderable.register
def _(found: Comparison) -> RenderableType:
    return comparison_table(found)


@renderable.register
def _(found: Scaling) -> RenderableType:
    return scaling_table(found, found.fixed)
