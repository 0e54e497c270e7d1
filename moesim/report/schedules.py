"""Schedules beside each other as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.errors import Violation
from moesim.report.estimate import gibibytes, seconds
from moesim.studies.schedules import Comparison

MOST_RANKS = 8
"""Ranks whose numbers are listed one by one."""


def table(rows: Sequence[Comparison]) -> RenderableType:
    """One line a schedule; what is refused stands below, with the reason."""
    shown = Table(box=None, pad_edge=False)
    for name in ("schedule", "vpp", "step", "bubble", "skewed step", "chunks kept", "activations GiB", "peak GiB"):
        shown.add_column(name, justify="left" if name in ("schedule", "chunks kept", "activations GiB") else "right")
    shown.add_column("copies", justify="right")
    for row in rows:
        shown.add_row(row.name, str(row.vpp), *_cells(row))
    return Group(shown, *_remarks(rows))


def _cells(row: Comparison) -> tuple[str, ...]:
    if row.step_time_s is None or row.skewed_step_time_s is None or row.bubble_fraction is None:
        return ("refused", *[""] * 6)
    peak = max(rank.peak_bytes for rank in row.ranks)
    return (
        seconds(row.step_time_s),
        f"{row.bubble_fraction:.1%}",
        seconds(row.skewed_step_time_s),
        _by_rank([str(rank.chunks) for rank in row.ranks]),
        _by_rank([f"{rank.activations_bytes / 2**30:.1f}" for rank in row.ranks]),
        gibibytes(peak) + ("" if row.fits else " !"),
        str(row.copies),
    )


def _by_rank(values: list[str]) -> str:
    """The numbers of all ranks, or of the first and the last where there are many; one where all are the same."""
    if len(set(values)) == 1:
        return f"{values[0]} each" if len(values) > 1 else values[0]
    if len(values) > MOST_RANKS:
        return f"{values[0]} .. {values[-1]}, at most {max(values, key=float)}"
    return " ".join(values)


def _remarks(rows: Sequence[Comparison]) -> list[Text]:
    lines = []
    for row in rows:
        lines += [f"{row.name}: refused: {_said(violation)}" for violation in row.refused]
        if row.fits is False:
            lines.append(f"{row.name}: does not fit")
    lines += _not_offered(rows)
    layouts = {row.layout for row in rows}
    if len(layouts) > 1:
        lines += [f"{row.name}: layers placed {row.layout}" for row in rows]
    if any(row.step_time_s is not None for row in rows):
        lines.append("skewed step: where the optimizer of a rank does not wait for the other ranks")
    return [Text(line) for line in lines]


def _not_offered(rows: Sequence[Comparison]) -> list[str]:
    """A line for each rule of the framework, with the schedules that break it."""
    by_rule: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for violation in row.not_offered if row.ranks else ():
            by_rule.setdefault((violation.rule, violation.legal), []).append(row.name)
    return [
        f"{', '.join(names)}: computed, though [{rule}] refuses it; legal: {legal}"
        for (rule, legal), names in by_rule.items()
    ]


def _said(violation: Violation) -> str:
    return f"{violation.message} [{violation.rule}]; legal: {violation.legal}"
