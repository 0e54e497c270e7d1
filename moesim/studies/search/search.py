"""The search: a walk through all combinations that never runs a plan that cannot be among the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.reading import plain_strategy
from moesim.result import Estimate
from moesim.studies.search.block import Counts
from moesim.studies.search.pool import Plan, Pool
from moesim.studies.search.space import Space, Vary, space
from moesim.studies.search.walk import Walk

OBJECTIVES = ("step", "memory")
"""What may be least: seconds a step, or bytes of the largest rank."""


@dataclass(frozen=True)
class Found:
    """One of the best plans, with its estimate."""

    plan: Plan
    answer: Estimate

    def to_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Plain values in SI units; ``names``: the fields that were varied."""
        answer = self.answer
        return {
            "strategy": plain_strategy(self.plan.strategy),
            "varied": {name: plain_strategy(self.plan.strategy)[name] for name in names},
            "step_time_s": self.plan.step_time_s,
            "low_s": answer.low_s,
            "high_s": answer.high_s,
            "peak_bytes": self.plan.peak_bytes,
            "binding": answer.binding,
        }


@dataclass(frozen=True)
class Search:
    """The answer of a search.

    Of the legal plans, some are ``bounded``: no run of theirs can beat the best, so that nobody asked whether they fit; of the
    others, some are ``fitting``. ``refused``: plans by the first rule that refuses them. ``runs``: plans that were run exactly. ``seconds`` of the walk
    and these runs, without the estimates of the best. ``complete``: whether it went through the whole space.
    """

    space: Space
    objective: str
    plans_legal: int
    plans_bounded: int
    plans_fitting: int
    refused: Mapping[str, int]
    plans_done: int
    runs: int
    seconds: float
    complete: bool
    top: tuple[Found, ...]

    @property
    def plans_total(self) -> int:
        """Combinations of the space."""
        return self.space.size

    @property
    def plans_per_s(self) -> float:
        """Combinations a second. [1/s]"""
        return self.plans_done / self.seconds

    def loses_by(self, found: Found) -> dict[str, float]:
        """What a plan takes longer than the best one, by term, the largest first; they and what it saves add up. [s]"""
        best = self.top[0].answer.breakdown_s
        own = found.answer.breakdown_s
        deltas = {name: own.get(name, 0.0) - best.get(name, 0.0) for name in {**best, **own}}
        return dict(sorted(deltas.items(), key=lambda one: -one[1]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        names = tuple(axis.name for axis in self.space.axes)
        top = [found.to_dict(names) | {"slower_s": self.loses_by(found)} for found in self.top]
        return {
            "plans_total": self.plans_total,
            "plans_done": self.plans_done,
            "plans_legal": self.plans_legal,
            "plans_bounded": self.plans_bounded,
            "plans_fitting": self.plans_fitting,
            "plans_run": self.runs,
            "seconds": self.seconds,
            "plans_per_s": self.plans_per_s,
            "complete": self.complete,
            "objective": self.objective,
            "axes": {axis.name: [_plain(value) for value in axis.values] for axis in self.space.axes},
            "refused": dict(self.refused),
            "top": top,
        }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Progress:
    """Where a search stands."""

    total: int
    counts: Counts
    best: Plan | None
    seconds: float


def search(
    problem: Problem,
    vary: Vary | None = None,
    top: int = 20,
    objective: str = "step",
    *,
    pareto: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Search:
    """Find the best of all legal plans that fit.

    Parameters
    ----------
    problem
        The job; fields that are not varied stay as its scenario says, or follow the defaults of its software.
    vary
        Values of each field, or ``auto`` for all that it can have. Left out: degrees, schedules, layouts, recomputation
        and expert transports, all ``auto``.
    top
        How many plans to return.
    objective
        ``step`` for the shortest step, ``memory`` for the smallest peak.
    pareto
        Return every plan than which no other one is better in step and memory instead, the shortest step first.
    progress
        Called now and then. A ``KeyboardInterrupt`` ends the search with what it has found.

    Raises
    ------
    SpecError
        With one issue for each field or value that does not exist.
    """
    if objective not in OBJECTIVES:
        raise SpecError.single("--objective", "", f"'{objective}' is no objective", did_you_mean(objective, OBJECTIVES))
    if top < 1:
        raise SpecError.single("--top", "", f"{top} plans are none", "write for example --top 20")
    if problem.slow is not None:
        raise SpecError.single("--fault", "", "a fault is priced with one strategy", "search without it")
    started = time.perf_counter()
    walked = space(problem, vary)
    pool = Pool(problem, top, objective, pareto)
    walk = Walk(walked, pool)

    def told() -> None:
        if progress is not None:
            best = pool.best[0] if pool.best else None
            progress(Progress(walked.size, walk.counts, best, time.perf_counter() - started))

    complete = True
    try:
        walk.run(told)
    except KeyboardInterrupt:
        complete = False
        pool.run(max(top, 1))
    seconds = time.perf_counter() - started
    counts = walk.counts
    ranked = dict(counts.refused.most_common())
    best = tuple(Found(plan, estimate(problem, plan.strategy)) for plan in pool.best)
    return Search(
        walked,
        objective,
        counts.legal,
        counts.bounded,
        counts.fitting,
        ranked,
        counts.done,
        pool.runs,
        seconds,
        complete,
        best,
    )
