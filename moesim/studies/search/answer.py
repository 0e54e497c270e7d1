"""The answer of a search, and where one stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moesim.base.display import Shown
from moesim.base.words import changes_in_words, counted
from moesim.reading import plain_fields, plain_strategy
from moesim.result import Estimate
from moesim.studies.search.block import Counts
from moesim.studies.search.jobs import Job
from moesim.studies.search.pool import Plan
from moesim.studies.search.ranking import Aim
from moesim.studies.search.space import Space
from moesim.workload.strategy import FIELDS


@dataclass(frozen=True)
class Found:
    """One of the best plans, with its estimate and the machine that it is for."""

    plan: Plan
    answer: Estimate
    job: Job

    @property
    def tokens_per_dollar(self) -> float | None:
        """Tokens for a unit of the currency of the price; None without one. [1/currency]"""
        return None if self.job.price is None else 1 / self.job.cost_per_token(self.plan.step_time_s)

    @property
    def variant(self) -> str:
        """How it differs from the job as its scenario has it, in words."""
        own, found = (plain_fields(one, FIELDS) for one in (self.job.problem.strategy, self.plan.strategy))
        return changes_in_words({**self.job.changes, **{name: one for name, one in found.items() if one != own[name]}})

    def to_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Plain values in SI units; ``names``: the fields that were varied."""
        answer = self.answer
        money = {} if self.job.price is None else {"tokens_per_dollar": self.tokens_per_dollar}
        return {
            "strategy": plain_strategy(self.plan.strategy),
            "varied": {**self.job.changes, **plain_fields(self.plan.strategy, names)},
            "num_gpus": self.job.problem.machine.num_gpus,
            "step_time_s": self.plan.step_time_s,
            "low_s": answer.low_s,
            "high_s": answer.high_s,
            "peak_bytes": self.plan.peak_bytes,
            "binding": answer.binding,
            **money,
        }


@dataclass(frozen=True, repr=False)
class Search(Shown):
    """The answer of a search.

    ``counts``: what became of the plans. ``resumed``: those done by an earlier run that a checkpoint tells of. ``runs``:
    plans that were run exactly. ``seconds`` of the walk and these runs, without the estimates of the best. ``complete``:
    whether it went through all spaces.
    """

    jobs: tuple[Job, ...]
    aim: Aim
    counts: Counts
    resumed: int
    runs: int
    seconds: float
    complete: bool
    top: tuple[Found, ...]

    def __repr__(self) -> str:
        best = f"best {self.top[0].plan.step_time_s:.4g} s" if self.top else "none fits"
        return f"Search({counted(self.plans_total, 'plan')}, {self.plans_legal:,} legal, {self.plans_fitting:,} fit, {best})"

    @property
    def space(self) -> Space:
        """The space of the first machine."""
        return self.jobs[0].space

    @property
    def plans_total(self) -> int:
        """Combinations of all spaces."""
        return sum(job.space.size for job in self.jobs)

    @property
    def plans_legal(self) -> int:
        """Combinations that no rule refuses."""
        return self.counts.legal

    @property
    def plans_bounded(self) -> int:
        """Legal ones that no run can bring among the best, so that nobody asked whether they fit."""
        return self.counts.bounded

    @property
    def plans_looked_at(self) -> int:
        """Legal ones of which it was asked whether they fit; rules and bounds count the others many at a time."""
        return self.counts.legal - self.counts.bounded

    @property
    def plans_not_reached(self) -> int:
        """Combinations of which nothing is known, as the search was stopped before; 0 where it is complete."""
        return self.plans_total - self.counts.done

    @property
    def plans_fitting(self) -> int:
        """Legal ones that fit in memory, among those of which it had to be known."""
        return self.counts.fitting

    @property
    def refused(self) -> Mapping[str, int]:
        """Plans by the first rule that refuses them."""
        return self.counts.refused

    @property
    def plans_per_s(self) -> float:
        """Combinations a second of this run. [1/s]"""
        return (self.counts.done - self.resumed) / self.seconds

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Values of what was varied, on any of the machines."""
        found: dict[str, dict[Any, None]] = {}
        for job in self.jobs:
            for name, value in job.changes.items():
                found.setdefault(name, {})[value] = None
            for axis in job.space.axes:
                found.setdefault(axis.name, {}).update(dict.fromkeys(axis.values))
        return {name: tuple(values) for name, values in found.items()}

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
            "plans_done": self.counts.done,
            "plans_resumed": self.resumed,
            "plans_legal": self.plans_legal,
            "plans_bounded": self.plans_bounded,
            "plans_looked_at": self.plans_looked_at,
            "plans_not_reached": self.plans_not_reached,
            "plans_fitting": self.plans_fitting,
            "plans_run": self.runs,
            "seconds": self.seconds,
            "plans_per_s": self.plans_per_s,
            "complete": self.complete,
            "objective": ",".join(self.aim.objectives),
            "axes": {name: [_plain(value) for value in values] for name, values in self.axes.items()},
            "refused": dict(self.refused),
            "top": top,
        }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Progress:
    """Where a search stands; ``resumed``: plans done by an earlier run."""

    total: int
    counts: Counts
    best: Plan | None
    seconds: float
    resumed: int = 0
