"""A Pareto front as a picture: what less of one objective costs of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from moesim.base.words import word
from moesim.report.figures import WIDTH, Picture, blank
from moesim.studies.search.answer import Found, Search
from moesim.studies.search.ranking import MEMORY, MONEY, STEP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of machines, in their order (Okabe and Ito)."""
LABELS = {STEP: "step time [s]", MEMORY: "peak of the largest rank [GiB]", MONEY: "tokens per unit of money"}
LABELLED = 8
"""Points that are named at most; the others stand between them."""
FIELDS = 3
"""Fields of a layout in a name: those that differ most over the front."""


def draw(found: Search, path: Path) -> None:
    """Draw the front into a file, by its ending."""
    front(found).save(path)


def front(found: Search) -> Picture:
    """The front over its first two objectives, a colour each machine; a third one is the size of the points."""
    first, second, *third = found.aim.objectives
    figure = blank(WIDTH, 5.5)
    axes = figure.subplots()
    for number, job in enumerate(found.jobs):
        points = [one for one in found.top if one.job is job]
        if points:
            sizes = [_sizes(found, points, third[0])] if third else []
            name = ", ".join(map(str, job.changes.values())) or job.problem.name
            x, y = _values(points, first), _values(points, second)
            axes.scatter(x, y, *sizes, color=COLOURS[number % len(COLOURS)], label=name, zorder=3)
    if not third:
        _stairs(axes, found, first, second)
    _names(axes, found, first, second)
    axes.set_xlabel(LABELS[first])
    axes.set_ylabel(LABELS[second])
    axes.set_title(_title(found, third), fontsize=10, loc="left")
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(found.jobs) > 1 and found.top:
        axes.legend(fontsize=9, title=", ".join(found.jobs[0].changes))
    return Picture(figure)


def _title(found: Search, third: Sequence[str]) -> str:
    told = f"{len(found.top)} of {found.plans_legal:,} legal layouts: none is better in all"
    for objective in third:
        every = _values(found.top, objective) or [0.0]
        told += f"; area: {LABELS[objective]}, {min(every):,.4g} to {max(every):,.4g}"
    return told


def _values(points: Sequence[Found], objective: str) -> list[float]:
    """What points have of an objective, in the unit of its label."""
    if objective == STEP:
        return [one.plan.step_time_s for one in points]
    if objective == MEMORY:
        return [one.plan.peak_bytes / 2**30 for one in points]
    return [one.tokens_per_dollar or 0.0 for one in points]


def _sizes(found: Search, points: Sequence[Found], objective: str) -> list[float]:
    """Areas of points, between the least and the most of the front. [square points]"""
    every = _values(found.top, objective)
    span = (max(every) - min(every)) or 1.0
    return [20 + 180 * (value - min(every)) / span for value in _values(points, objective)]


def _stairs(axes: Axes, found: Search, first: str, second: str) -> None:
    """The edge of what can be had: between two points it is no better than the worse of each."""
    x, y = _values(found.top, first), _values(found.top, second)
    pairs = sorted(zip(x, y, strict=True))
    where: Literal["pre", "post"] = "pre" if first == MONEY else "post"  # of money's worth more is better
    axes.step([a for a, _ in pairs], [b for _, b in pairs], where=where, color="#888888", linewidth=1)


def _names(axes: Axes, found: Search, first: str, second: str) -> None:
    """Name some points by the fields that differ most over the front."""
    fields = tuple(axis.name for axis in found.space.axes)
    told = [one.to_dict(fields)["varied"] for one in found.top]
    layouts = [{name: one[name] for name in fields} for one in told]  # machines have their colours
    kinds = {name: len({word(one[name]) for one in layouts}) for name in (layouts[0] if layouts else {})}
    names = [name for name in sorted(kinds, key=lambda name: -kinds[name]) if kinds[name] > 1][:FIELDS]
    stride = max(1, -(-len(layouts) // LABELLED))
    for place in range(0, len(layouts), stride):
        one = [found.top[place]]
        text = ", ".join(f"{name} {word(layouts[place][name])}" for name in names)
        at = (_values(one, first)[0], _values(one, second)[0])
        axes.annotate(text, at, xytext=(6, 5), textcoords="offset points", fontsize=8)
