"""The best plans so far, and the plans that may still be among them, by what no run of theirs can beat."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from moesim.evaluator import step_times_of
from moesim.problem import Problem
from moesim.studies.search.tables import Array
from moesim.workload.strategy import COUNTS, DEGREES, Strategy

FULL = 262_144
"""Plans that wait before the best of them are run, to learn which of the others cannot matter."""


MORE = 32
"""Plans that are run at a time while the best ones are not known for sure."""


@dataclass(frozen=True)
class Plan:
    """A plan that was run: its strategy, step time [s], and peak of memory [B]."""

    strategy: Strategy
    step_time_s: float
    peak_bytes: float


@dataclass(frozen=True, eq=False)
class Batch:
    """Plans of one shape and choice of methods: their strategy in columns, bounds of the step [s], peaks [B]."""

    strategy: Strategy
    columns: NDArray[np.int64]
    bounds: Array
    peaks: Array

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
        return Batch(self.strategy, self.columns[mask], self.bounds[mask], self.peaks[mask])


@dataclass(eq=False)
class Pool:
    """Keeps what may be among the best.

    ``objective``: ``step`` or ``memory``; among plans that are equally good the other one decides. ``front``: keep every
    plan than which no other one is better in both instead. ``runs``: exact runs so far.
    """

    problem: Problem
    top: int
    objective: str = "step"
    front: bool = False
    best: list[Plan] = field(default_factory=list)
    runs: int = 0
    _waiting: list[Batch] = field(default_factory=list)
    _size: int = 0

    def add(self, batch: Batch) -> None:
        """Take plans in, those that cannot be among the best left out."""
        left = batch.only(self._may(batch.bounds, batch.peaks))
        if len(left.columns):
            self._waiting.append(left)
            self._size += len(left.columns)
        if self._size > FULL:
            while self._size > FULL // 2:
                self.run(max(2 * self.top, 64))

    def finish(self) -> None:
        """Run plans, the most promising first, until none of the others can be among the best."""
        self.run(self.top)
        while self._size:
            self.run(MORE)

    def run(self, number: int) -> None:
        """Run the most promising plans."""
        if not self._waiting:
            return
        places = np.concatenate([np.full(len(one.columns), place) for place, one in enumerate(self._waiting)])
        inside = np.concatenate([np.arange(len(one.columns)) for one in self._waiting])
        bounds = np.concatenate([one.bounds for one in self._waiting])
        peaks = np.concatenate([one.peaks for one in self._waiting])
        order = np.lexsort((peaks, bounds) if self.objective == "step" else (bounds, peaks))[:number]
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
        stays = ~gone & self._may(bounds, peaks)
        ends = np.cumsum([len(one.columns) for one in self._waiting])
        kept = [one.only(mask) for one, mask in zip(self._waiting, np.split(stays, ends[:-1]), strict=True)]
        self._waiting = [one for one in kept if len(one.columns)]
        self._size = int(np.count_nonzero(stays))

    def _key(self, plan: Plan) -> tuple[float, float]:
        pair = (plan.step_time_s, plan.peak_bytes)
        return pair if self.objective == "step" else pair[::-1]

    def _ranked(self) -> list[Plan]:
        ranked = sorted(self.best, key=self._key)
        if not self.front:
            return ranked[: self.top]
        kept: list[Plan] = []
        for plan in sorted(ranked, key=lambda one: (one.step_time_s, one.peak_bytes)):
            if not kept or plan.peak_bytes < kept[-1].peak_bytes:
                kept.append(plan)
        return kept

    def _may(self, bounds: Array, peaks: Array) -> NDArray[np.bool_]:
        """Which plans may be among the best, from their bounds and peaks."""
        if self.front:
            may = np.ones(len(bounds), dtype=bool)
            for plan in self.best:
                may &= (
                    (bounds <= plan.step_time_s) & (peaks <= plan.peak_bytes)
                    | (peaks < plan.peak_bytes)
                    | (bounds < plan.step_time_s)
                )
            return may
        if len(self.best) < self.top:
            return np.ones(len(bounds), dtype=bool)
        last = self.best[-1]
        if self.objective == "step":
            return np.asarray(bounds <= last.step_time_s)
        slack = 1e-9 * last.peak_bytes  # peaks of a search and of a run differ by rounding
        return np.asarray(peaks <= last.peak_bytes + slack)
