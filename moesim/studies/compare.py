"""Estimates side by side: what each term of the step gains or loses against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import BREAKDOWN, EXTRA, Estimate
from moesim.studies.faults import with_changes
from moesim.studies.search.search import search


@dataclass(frozen=True)
class Case:
    """One column: how it differs, its estimate or why there is none, and what was searched for it."""

    name: str
    answer: Estimate | None
    refused: tuple[str, ...] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Cases beside each other; the first one that could be estimated is the base of the differences."""

    cases: tuple[Case, ...]

    def __repr__(self) -> str:
        return f"Comparison({', '.join(repr(case.name) for case in self.cases)})"

    @property
    def base(self) -> Estimate:
        """Estimate that the others are set against."""
        return next(case.answer for case in self.cases if case.answer is not None)

    def deltas_s(self, answer: Estimate) -> dict[str, float]:
        """Difference of each term of the step; they add up to the difference of the step. [s]"""
        before, after = self.base.breakdown_s, answer.breakdown_s
        names = (*BREAKDOWN, *(name for name in EXTRA if name in before or name in after))
        return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain: list[dict[str, Any]] = []
        for case in self.cases:
            if case.answer is None:
                plain.append({"case": case.name, "refused": list(case.refused)})
                continue
            told: dict[str, Any] = {
                "case": case.name,
                "delta_s": case.answer.step_time_s - self.base.step_time_s,
                "speedup": self.base.step_time_s / case.answer.step_time_s,
                "delta_breakdown_s": self.deltas_s(case.answer),
                "delta_peak_bytes": case.answer.memory.peak_bytes - self.base.memory.peak_bytes,
            }
            if case.layout:
                told["reoptimised"] = dict(case.layout)
            plain.append(told | {"estimate": case.answer.to_dict()})
        return {"base": next(case.name for case in self.cases if case.answer is not None), "cases": plain}


def comparison(
    problems: Mapping[str, Problem],
    variants: Sequence[Mapping[str, str]],
    include_base: bool = True,
    reoptimise: Sequence[str] = (),
    where: str = "--vary",
) -> Comparison:
    """Estimate every problem as it is and under every variant.

    Parameters
    ----------
    problems
        Problems by the names of their columns.
    variants
        Changes as ``--set`` takes them, and ``fault``; an empty one changes nothing.
    include_base
        Put each problem as it stands before its variants.
    reoptimise
        Fields of the strategy that are searched for each case, those that it changes left out: each stands there with
        its own best.
    where
        Option that the variants came from, for messages.

    Raises
    ------
    SpecError
        Where fewer than two can be estimated, with every reason.
    """
    cases: list[Case] = []
    issues = []
    empty: dict[str, str] = {}
    wanted = [empty, *(one for one in variants if one)] if include_base else list(variants)
    for name, problem in problems.items():
        for changes in wanted:
            told = ", ".join(f"{path.removeprefix('strategy.')}={value}" for path, value in changes.items())
            column = " ".join(part for part in (name if len(problems) > 1 or not told else "", told) if part)
            try:
                changed = with_changes(problem, changes, where) if changes else problem
                answer = _best(changed, [one for one in reoptimise if one not in _fields(changes)])
            except SpecError as error:
                issues += list(error.issues)
                cases.append(Case(column, None, tuple(str(issue) for issue in error.issues)))
            else:
                layout = {one: answer.strategy[one] for one in reoptimise}
                cases.append(Case(column, answer, layout=layout))
    if sum(case.answer is not None for case in cases) < 2:
        raise SpecError(dict.fromkeys(issues))
    return Comparison(tuple(cases))


def _fields(changes: Mapping[str, str]) -> set[str]:
    return {path.removeprefix("strategy.") for path in changes}


def _best(problem: Problem, fields: Sequence[str]) -> Estimate:
    """The estimate of a problem, with the best of all values of some fields."""
    if not fields:
        return estimate(problem)
    found = search(problem, dict.fromkeys(fields, "auto"), top=1)
    if not found.top:
        what = f"none of {found.plans_total:,} layouts of {', '.join(fields)} is legal and fits ({found.plans_legal:,} legal)"
        raise SpecError.single("--reoptimise", "", what, "search more fields, or use more nodes")
    return found.top[0].answer
