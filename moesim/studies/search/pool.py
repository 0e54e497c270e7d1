"""The best plans so far, and the plans that may still be among them, by what no run of theirs can beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from moesim.evaluator import step_times_of
from moesim.problem import Problem
from moesim.studies.search.refine import Least, closer_bounds
from moesim.studies.search.tables import Array
from moesim.workload.strategy import COUNTS, DEGREES, Strategy

FULL = 262_144
"""Plans that wait before the best of them are run, to learn which of the others cannot matter."""


MORE = 32
"""Plans that are run at a time while the best ones are not known for sure."""
BESIDE, NEARLY = 8, 1.05
"""Plans that are run for each one that is wanted, at most, where they share its run and their bounds are that close."""
BETTER = 1.15
"""How much better than the last of the best plans that wait must look, for an early run to pay."""


Rival = tuple[float, float]
"""Step and peak of a plan that is known from elsewhere. [s, B]"""


def rounded(value: float) -> float:
    """A number without its last digits, which depend on what it was worked out together with."""
    return float(f"{value:.12e}")


def _nowhere(_: Strategy) -> tuple[int, ...]:
    return ()


@dataclass(frozen=True)
class Plan:
    """A plan that was run: its strategy, step time [s], and peak of memory [B]."""

    strategy: Strategy
    step_time_s: float
    peak_bytes: float


@dataclass(frozen=True, eq=False)
class Batch:
    """Plans of one shape and choice of methods: their strategy in columns, bounds of the step [s], peaks [B].

    ``least``: what closer bounds follow from; None where they are as close as they get.
    """

    strategy: Strategy
    columns: NDArray[np.int64]
    bounds: Array
    peaks: Array
    least: Least | None = None

    def plan(self, place: int) -> Strategy:
        """The strategy of one plan."""
        column = int(self.columns[place])
        degrees = {}
        for name in DEGREES:
            value = float(np.asarray(getattr(self.strategy, name))[column])
            degrees[name] = int(value) if name in COUNTS else value
        return self.strategy.replace(**degrees)

    def only(self, mask: NDArray[np.bool_]) -> Batch:
        """Some of the plans."""
        least = None if self.least is None else self.least.only(mask)
        return Batch(self.strategy, self.columns[mask], self.bounds[mask], self.peaks[mask], least)

    def split(self, wanted: NDArray[np.bool_]) -> tuple[list[Batch], list[Batch]]:
        """Plans with as many micro-batches as a wanted one, a batch each number, and the rest, if any."""
        if self.least is None:
            return [], [self]
        counts = self.least.micro_batches
        numbers = np.unique(counts[wanted])
        left = ~np.isin(counts, numbers)
        return [self.only(counts == number) for number in numbers], [self.only(left)] if left.any() else []


def refined(batches: Sequence[Batch]) -> list[Batch]:
    """Batches of one number of micro-batches each, with closer bounds."""
    closer = closer_bounds([batch.least for batch in batches if batch.least is not None])
    return [
        replace(batch, bounds=np.maximum(batch.bounds, bounds), least=None)
        for batch, bounds in zip(batches, closer, strict=True)
    ]


@dataclass(eq=False)
class Pool:
    """Keeps what may be among the best.

    ``objective``: ``step`` or ``memory``; among plans that are equally good the other one decides. ``front``: keep every
    plan than which no other one is better in both instead. ``runs``: exact runs so far; ``size``: plans that wait.
    ``rivals``: plans from elsewhere, of a front or the last of the best: what they beat is not among the best. ``place``:
    what decides between plans that are equal in both.
    """

    problem: Problem
    top: int
    objective: str = "step"
    front: bool = False
    best: list[Plan] = field(default_factory=list)
    runs: int = 0
    rivals: tuple[Rival, ...] = ()
    place: Callable[[Strategy], tuple[int, ...]] = _nowhere
    _waiting: list[Batch] = field(default_factory=list)
    size: int = 0

    def add(self, batch: Batch) -> None:
        """Take in plans that :meth:`may` be among the best."""
        if len(batch.columns):
            self._waiting.append(batch)
            self.size += len(batch.columns)
        if self.size > FULL:
            while self.size > FULL // 2:
                self.run(max(2 * self.top, 64))

    def finish(self) -> None:
        """Run plans, the most promising first, until none of the others can be among the best."""
        self.run(self.top)
        while self.size:
            self.run(MORE)

    def run(self, number: int) -> None:
        """Run the most promising plans."""
        if not self._waiting:
            return
        while self._refine(number):
            pass
        places, inside, bounds, peaks = self._joined()
        order = self._together(self._order(bounds, peaks), number, places, bounds)
        chosen = [self._waiting[places[one]].plan(int(inside[one])) for one in order]
        steps = step_times_of(self.problem, chosen)
        self.runs += len(chosen)
        self.best += [
            Plan(strategy, float(step), float(peak))
            for strategy, step, peak in zip(chosen, steps, peaks[order], strict=True)
        ]
        self.best = self._ranked()
        gone = np.zeros(len(bounds), dtype=bool)
        gone[order] = True
        stays = ~gone & self.may(bounds, peaks)
        ends = np.cumsum([len(one.columns) for one in self._waiting])
        kept = [one.only(mask) for one, mask in zip(self._waiting, np.split(stays, ends[:-1]), strict=True)]
        self._waiting = [one for one in kept if len(one.columns)]
        self.size = int(np.count_nonzero(stays))

    def promises(self) -> bool:
        """Whether as many plans wait as are wanted, and look much better than the last of the best."""
        if self.size < self.top or self.front or self.objective != "step":
            return self.size >= self.top > len(self.best)
        if len(self.best) < self.top:
            return True
        bounds = np.concatenate([one.bounds for one in self._waiting])
        return bool(BETTER * np.partition(bounds, self.top - 1)[self.top - 1] < self.best[-1].step_time_s)

    def _joined(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]:
        """Batch, place in it, bound and peak of all that wait."""
        sizes = [len(one.columns) for one in self._waiting]
        return (
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([np.arange(size) for size in sizes]),
            np.concatenate([one.bounds for one in self._waiting]),
            np.concatenate([one.peaks for one in self._waiting]),
        )

    def _order(self, bounds: Array, peaks: Array) -> NDArray[np.int64]:
        """The most promising first."""
        return np.lexsort((peaks, bounds) if self.objective == "step" else (bounds, peaks))

    def _together(
        self, order: NDArray[np.int64], number: int, places: NDArray[np.int64], bounds: Array
    ) -> NDArray[np.int64]:
        """The most promising plans, and those that are nearly as good and run at once with one of them."""
        first, others = order[:number], order[number:]
        if self.objective != "step" or not len(others):
            return first
        full = len(self.best) == self.top and not self.front
        limit = self.best[-1].step_time_s if full else NEARLY * bounds[first[-1]]
        alone = np.array([one.least is None for one in self._waiting])
        run = np.zeros(len(self._waiting), dtype=bool)
        run[places[first]] = True
        near = (alone & run)[places[others]] & (bounds[others] <= limit)
        return np.concatenate([first, others[near][: number * BESIDE]])

    def _refine(self, number: int) -> bool:
        """Whether there were plans among the most promising that did not have their closer bounds yet."""
        if self.objective != "step" or not self._waiting:
            return False
        places, inside, bounds, peaks = self._joined()
        order = self._order(bounds, peaks)[:number]
        rough = [place for place in np.unique(places[order]).tolist() if self._waiting[place].least is not None]
        some: list[Batch] = []
        rest: list[Batch] = []
        for place in rough:
            wanted = np.zeros(len(self._waiting[place].columns), dtype=bool)
            wanted[inside[order[places[order] == place]]] = True
            chosen, left = self._waiting[place].split(wanted)
            some += chosen
            rest += left
        others = [one for place, one in enumerate(self._waiting) if place not in set(rough)]
        self._waiting = [*others, *rest, *refined(some)]
        return bool(rough)

    def _key(self, plan: Plan) -> tuple[tuple[float, ...], tuple[int, ...]]:
        pair = (rounded(plan.step_time_s), rounded(plan.peak_bytes))
        return pair if self.objective == "step" else pair[::-1], self.place(plan.strategy)

    def _ranked(self) -> list[Plan]:
        once = {plan.strategy: plan for plan in self.best}  # a run that was stopped may have been begun again
        ranked = sorted(once.values(), key=self._key)
        if not self.front:
            return ranked[: self.top]
        kept: list[Plan] = []
        for plan in ranked:
            if not kept or rounded(plan.peak_bytes) < rounded(kept[-1].peak_bytes):
                kept.append(plan)
        return kept

    def may(self, bounds: Array, peaks: Array) -> NDArray[np.bool_]:
        """Which plans may be among the best, from their bounds and peaks."""
        may = np.ones(len(bounds), dtype=bool)
        known = self.best if self.front else self.best[self.top - 1 :]
        for step, peak in [*self.rivals, *((plan.step_time_s, plan.peak_bytes) for plan in known)]:
            if self.front:
                may &= (bounds <= step) & (peaks <= peak) | (peaks < peak) | (bounds < step)
            elif self.objective == "step":
                may &= bounds <= step
            else:
                slack = 1e-9 * peak  # the same peak in another order of additions
                may &= (peaks < peak - slack) | ((peaks <= peak + slack) & (bounds <= step))
        return may
