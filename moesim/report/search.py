"""The answer of a search as a table and as rows, and its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.words import counted, word
from moesim.report.estimate import gibibytes, seconds
from moesim.report.frames import write_frame
from moesim.studies.fewest import Tried
from moesim.studies.search.answer import Found, Progress, Search

RULES = 12
"""Rules of refused plans that are listed."""
TERMS = 2
"""Terms that are named for a plan that is slower than the best."""

NUMBERS = ("num_gpus", "step_time_s", "low_s", "high_s", "peak_bytes")
"""Columns of a file of plans that every search has, behind what is varied."""


def search_table(found: Search) -> RenderableType:
    """The best plans, why the others are slower, and what was refused."""
    names = [name for name, values in found.axes.items() if len(values) > 1]
    fields = tuple(axis.name for axis in found.space.axes)
    priced = found.jobs[0].price is not None
    table = Table(title=_title(found), title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    money = ("tokens/$",) if priced else ()
    for column in ("step", "90 % interval", "GiB", *money, "binding", "slower by"):
        table.add_column(column, justify="left" if column in ("binding", "slower by") else "right")
    for one in found.top:
        varied = one.to_dict(fields)["varied"]
        table.add_row(
            *(word(varied[name]) for name in names),
            seconds(one.plan.step_time_s),
            f"{seconds(one.answer.low_s)}-{seconds(one.answer.high_s)}",
            gibibytes(one.plan.peak_bytes),
            *((f"{one.tokens_per_dollar:,.0f}",) if priced else ()),
            str(one.answer.binding["resource"]),
            _slower(found, one),
        )
    refused = Table(title="refused by", title_justify="left")
    refused.add_column("rule")
    refused.add_column("plans", justify="right")
    for rule, count in list(found.refused.items())[:RULES]:
        refused.add_row(rule, f"{count:,}")
    if len(found.refused) > RULES:
        refused.add_row(f"{len(found.refused) - RULES} more", f"{sum(list(found.refused.values())[RULES:]):,}")
    return Group(table, *([refused] if found.refused else []))


def fewest_table(tried: Sequence[Tried]) -> RenderableType:
    """A row a number of nodes, with the fastest layout that fits; slower ones are left out, whether they fit or not.

    Where none fits, the layout is the one with the smallest peak, and what a GPU lacks for it; lines below say what refuses
    all layouts of a number of nodes.
    """
    table = Table(title="the fewest nodes on which a layout fits", title_justify="left")
    for column in ("nodes", "GPUs", "legal", "left out", "fit", "step", "GiB", "layout"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for one in tried:
        found = one.found
        row = [str(one.nodes), *(f"{count:,}" for count in (one.gpus, found.plans_legal, found.counts.bounded))]
        row.append(f"{found.plans_fitting:,}")
        if one.found.top:
            best = one.found.top[0]
            row += [seconds(best.plan.step_time_s), gibibytes(best.plan.peak_bytes), _layout(one, best)]
        elif one.closest is not None and one.lacking_bytes is not None:
            told = f"lacks {gibibytes(one.lacking_bytes)} GiB with {_layout(one, one.closest)}"
            row += ["", gibibytes(one.closest.plan.peak_bytes), told]
        else:
            row += ["", "", "none is legal"]
        table.add_row(*row)
    lines = [Text(f"{one.nodes} nodes: {issue}") for one in tried for issue in one.refusals]
    return Group(table, *lines)


def _layout(one: Tried, best: Found) -> str:
    """What was varied of a layout."""
    names = tuple(axis.name for axis in one.found.space.axes)
    return ", ".join(f"{name} {word(value)}" for name, value in best.to_dict(names)["varied"].items())


def _title(found: Search) -> str:
    before = f"{found.resumed:,} done before; " if found.resumed else ""
    if not found.complete:
        return before + stopped(found)
    return (
        f"{before}{counted(found.plans_total, 'plan')}: {found.plans_legal:,} legal, {found.counts.bounded:,} left out by a bound, {found.plans_fitting:,} fit, {found.runs:,} run; "
        f"{found.seconds:.1f} s, {found.plans_per_s:,.0f} plans/s"
    )


def stopped(found: Search) -> str:
    """What a search that was stopped has looked at, and what it has counted without or never reached."""
    return (
        f"stopped after {found.seconds:.1f} s; of {found.plans_total:,} plans {found.plans_looked_at:,} looked at, of which "
        f"{found.plans_fitting:,} fit, {found.runs:,} run; counted without being looked at: "
        f"{sum(found.refused.values()):,} refused by rules, {found.plans_bounded:,} left out by a bound; "
        f"{found.plans_not_reached:,} not reached"
    )


def _slower(found: Search, one: Found) -> str:
    """The terms that make a plan slower than the best one."""
    if one is found.top[0]:
        return ""
    terms = [(name, delta) for name, delta in found.loses_by(one).items() if delta > 0][:TERMS]
    return ", ".join(f"{name} +{seconds(delta)}" for name, delta in terms)


def write_rows(path: Path, found: Search) -> None:
    """Write the best plans as a table of a file, a row each."""
    names = tuple(axis.name for axis in found.space.axes)
    rows = []
    for one in found.top:
        told = one.to_dict(names)
        row = {
            name: word(value) if isinstance(value, list | tuple) else value for name, value in told["varied"].items()
        }
        row |= {name: told[name] for name in (*NUMBERS, "tokens_per_dollar") if name in told}
        rows.append(row | {"binding": told["binding"]["resource"]})
    priced = ("tokens_per_dollar",) if found.jobs[0].price is not None else ()
    columns = (*found.jobs[0].changes, *names, *NUMBERS, *priced, "binding")
    write_frame(path, rows or dict.fromkeys(columns, ()))


@contextmanager
def shown_progress() -> Iterator[Callable[[Progress], None] | None]:
    """Counts, rate and the best plan so far on the terminal; nothing where there is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.status import Status

    with Status("searching", console=Console(stderr=True)) as status:

        def show(progress: Progress) -> None:
            counts, best = progress.counts, progress.best
            rate = (counts.done - progress.resumed) / progress.seconds
            told = f", best {seconds(best.step_time_s)}" if best else ""
            status.update(
                f"{counts.done:,} of {progress.total:,} plans, {counts.legal:,} legal, {counts.fitting:,} fit, "
                f"{rate:,.0f} plans/s{told}"
            )

        yield show
