"""Estimates side by side: what each term of the step gains or loses against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moesim.base.display import Shown
from moesim.base.errors import Collector, SpecError, blamed
from moesim.base.words import changes_in_words, counted
from moesim.cost.plan import Plan
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import BREAKDOWN, EXTRA, Estimate
from moesim.studies.faults import with_changes
from moesim.studies.kernel_shares import outside_products
from moesim.studies.search.search import search
from moesim.studies.search.space import space
from moesim.workload.strategy import OFF

HOUR = 3600.0


@dataclass(frozen=True)
class Case:
    """One column: how it differs, its estimate or why there is none, and what was searched for it."""

    name: str
    answer: Estimate | None
    refused: tuple[str, ...] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    price: float | None = None
    plan: Plan | None = field(default=None, repr=False, compare=False)

    @property
    def share_outside_products(self) -> float | None:
        """Share of the time of all kernels and messages that is in no matrix product of a layer. [-]"""
        return None if self.plan is None else outside_products(self.plan)

    @property
    def tokens_per_dollar(self) -> float | None:
        """Tokens for a unit of the currency of the price; None without one. [1/currency]"""
        if self.answer is None or self.price is None:
            return None
        return self.answer.tokens_per_s_per_gpu * HOUR / self.price


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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What must not be read off the columns side by side."""
        answers = [case.answer for case in self.cases if case.answer is not None]
        flop = [answer.model_flop_per_token for answer in answers]
        if max(flop) <= min(flop) * (1 + 1e-9):
            return ()
        return (
            f"MFU and TFLOP/s are not comparable: a token counts {min(flop):.4g} to {max(flop):.4g} FLOP; "
            "compare tokens/s",
        )

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
                "tokens_ratio": case.answer.tokens_per_s_per_gpu / self.base.tokens_per_s_per_gpu,
                "share_outside_products": case.share_outside_products,
                "activations_bytes": max(float(stage["activations_bytes"]) for stage in case.answer.memory.stages),
            }
            told["host_bound"] = case.answer.binding["resource"] == "host"
            if case.price is not None:
                told["tokens_per_dollar"] = case.tokens_per_dollar
            if case.layout:
                told["reoptimised"] = dict(case.layout)
            plain.append(told | {"estimate": case.answer.to_dict()})
        base = next(case.name for case in self.cases if case.answer is not None)
        return {"base": base, "cases": plain, "warnings": list(self.warnings)}


def comparison(
    problems: Mapping[str, Problem],
    variants: Sequence[Mapping[str, str]],
    include_base: bool = True,
    reoptimise: Sequence[str] = (),
    where: str = "--vary",
    price: float | Mapping[str, float] | None = None,
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
        Fields of the strategy that are searched for each case, so that each stands there with its own best; none that a
        variant changes.
    where
        Option that the variants came from, for messages.
    price
        Of a GPU for an hour, or by kind of node. [currency]

    Raises
    ------
    SpecError
        Where fewer than two can be estimated, with every reason, and for a field that cannot be searched.
    """
    _searchable(problems, variants, reoptimise, where)
    cases: list[Case] = []
    issues = []
    empty: dict[str, str] = {}
    wanted = [empty, *(one for one in variants if one)] if include_base else list(variants)
    for name, problem in problems.items():
        for changes in wanted:
            told = changes_in_words({path.removeprefix("strategy."): value for path, value in changes.items()})
            column = " ".join(part for part in (name if len(problems) > 1 or not told else "", told) if part)
            try:
                changed = with_changes(problem, changes, where) if changes else problem
                answer, plan = _best(changed, reoptimise)
            except SpecError as error:
                issues += list(error.issues)
                cases.append(Case(column, None, tuple(str(issue) for issue in error.issues)))
            else:
                layout = {one: answer.strategy.get(one, OFF.get(one)) for one in reoptimise}
                cases.append(Case(column, answer, layout=layout, price=_price(price, changed), plan=plan))
    if sum(case.answer is not None for case in cases) < 2:
        raise SpecError(dict.fromkeys(issues))
    return Comparison(tuple(cases))


def _price(price: float | Mapping[str, float] | None, problem: Problem) -> float | None:
    """The price of a GPU of a problem's nodes. [currency/h]"""
    if price is None or isinstance(price, float):
        return price
    node = problem.scenario.cluster.node
    if node not in price:
        raise SpecError.single("--price", "", f"says nothing of {node}", f"add {node}=2.5/h")
    return price[node]


def _searchable(
    problems: Mapping[str, Problem], variants: Sequence[Mapping[str, str]], reoptimise: Sequence[str], where: str
) -> None:
    """Refuse fields that are no axis of a search, and those that a variant sets."""
    if not reoptimise:
        return
    found = Collector()
    for path in dict.fromkeys(path for changes in variants for path in changes):
        if path.removeprefix("strategy.") in reoptimise:
            what = f"is also searched, by --reoptimise {path.removeprefix('strategy.')}"
            found.add(f"{where} {path}", "", what, "leave one of the two out")
    try:
        with blamed("--reoptimise", "--vary"):
            space(next(iter(problems.values())), dict.fromkeys(reoptimise, "auto"))
    except SpecError as error:
        found.extend(error.issues)
    found.raise_if_any()


def _best(problem: Problem, fields: Sequence[str]) -> tuple[Estimate, Plan]:
    """The estimate of a problem, with the best of all values of some fields, and its plan."""
    if not fields:
        return estimate(problem), problem.plan()
    found = search(problem, dict.fromkeys(fields, "auto"), top=1)
    if not found.complete:
        raise KeyboardInterrupt
    if not found.top:
        what = f"none of {counted(found.plans_total, 'layout')} of {', '.join(fields)} is legal and fits ({found.plans_legal:,} legal)"
        raise SpecError.single("--reoptimise", "", what, "search more fields, or use more nodes")
    best = found.top[0]
    return best.answer, best.job.problem.plan(best.plan.strategy)
