"""Which plans are the best of all parts and machines: an order that does not depend on who found them when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moesim.base.errors import Collector, did_you_mean
from moesim.studies.search.jobs import Job
from moesim.studies.search.pool import Plan, Pool, Rival, rounded

STEP, MEMORY, MONEY = "step", "memory", "tokens-per-dollar"
OBJECTIVES = (STEP, MEMORY, MONEY)
"""What may be best: least seconds a step, least bytes of the largest rank, most tokens for the money."""


@dataclass(frozen=True)
class Aim:
    """What is looked for: the ``top`` plans by one objective, or with several every plan that none is better than in all."""

    objectives: tuple[str, ...]
    top: int

    @property
    def front(self) -> bool:
        """Whether there are several objectives."""
        return len(self.objectives) > 1

    def pool(self, job: Job, rivals: tuple[Rival, ...]) -> Pool:
        """A pool for plans of a machine, on which the most tokens for the money are those of the shortest step."""
        place = job.space.place
        if self.front and MEMORY in self.objectives:
            return Pool(job.problem, self.top, front=True, rivals=rivals, place=place)
        top = 1 if self.front else self.top
        return Pool(job.problem, top, MEMORY if self.objectives == (MEMORY,) else STEP, rivals=rivals, place=place)

    def values(self, job: Job, step_time_s: float, peak_bytes: float) -> tuple[float, ...]:
        """What is to be least, in the order of the objectives. [s, B or currency/token]"""
        made = {STEP: lambda: step_time_s, MEMORY: lambda: peak_bytes, MONEY: lambda: job.cost_per_token(step_time_s)}
        return tuple(made[name]() for name in self.objectives)


def aim(jobs: Sequence[Job], objectives: Sequence[str], top: int, option: str) -> Aim:
    """What is looked for.

    Raises
    ------
    SpecError
        With one issue for each objective that does not exist or cannot be told, named by ``option``.
    """
    problems = Collector()
    for name in objectives:
        if name not in OBJECTIVES:
            problems.add(option, "", f"'{name}' is no objective", did_you_mean(name, OBJECTIVES))
    if len(set(objectives)) < len(objectives):
        problems.add(option, "", "names an objective twice", "name each once")
    if MONEY in objectives and any(job.price is None for job in jobs):
        problems.add(option, "", f"'{MONEY}' needs the price of a GPU", "write for example --price 2.5/h")
    if top < 1:
        problems.add("--top", "", f"{top} plans are none", "write for example --top 20")
    problems.raise_if_any()
    return Aim(tuple(objectives), top)


@dataclass(frozen=True)
class Ranked:
    """A plan on the machine of a number."""

    number: int
    plan: Plan


class Ranking:
    """The best plans so far. Equal ones stand in the order of the machines and of the values of the axes."""

    def __init__(self, jobs: Sequence[Job], aim: Aim) -> None:
        self._jobs, self._aim = jobs, aim
        self.best: tuple[Ranked, ...] = ()

    def take(self, number: int, plans: Iterable[Plan]) -> None:
        """Take in plans on the machine of a number."""
        known = {(one.number, one.plan.strategy): one for one in self.best}
        known |= {(number, plan.strategy): Ranked(number, plan) for plan in plans}
        self.best = self.sorted(known.values())

    def sorted(self, plans: Iterable[Ranked]) -> tuple[Ranked, ...]:
        """The best of some plans, the best first."""
        keyed = sorted(((self._values(one), self._order(one), one) for one in plans), key=lambda entry: entry[:2])
        if not self._aim.front:
            return tuple(one for _, _, one in keyed[: self._aim.top])
        kept: list[tuple[float, ...]] = []
        found = []
        for values, _, one in keyed:
            if not any(all(a <= b for a, b in zip(other, values, strict=True)) for other in kept):
                kept.append(values)
                found.append(one)
        return tuple(found)

    def _values(self, one: Ranked) -> tuple[float, ...]:
        found = self._aim.values(self._jobs[one.number], one.plan.step_time_s, one.plan.peak_bytes)
        return tuple(rounded(value) for value in found)

    def _order(self, one: Ranked) -> tuple[float, ...]:
        place = self._jobs[one.number].space.place(one.plan.strategy)
        return (rounded(one.plan.step_time_s), rounded(one.plan.peak_bytes), one.number, *place)

    def rivals(self, number: int) -> tuple[Rival, ...]:
        """Steps and peaks that a plan on a machine has to beat to be among the best. [s, B]"""
        if self._aim.front:
            own = MONEY in self._aim.objectives
            return tuple(
                (one.plan.step_time_s, one.plan.peak_bytes) for one in self.best if one.number == number or not own
            )
        if len(self.best) < self._aim.top:
            return ()
        last = self.best[-1]
        step = last.plan.step_time_s
        if self._aim.objectives == (MONEY,):  # the step on this machine that costs as much
            step *= self._jobs[last.number].cost_per_token(1.0) / self._jobs[number].cost_per_token(1.0)
        return ((step * (1 + SLACK), last.plan.peak_bytes),)


SLACK = 1e-9
"""Room for rounding where steps on several machines are set against each other. [-]"""
