"""The walk through a space: which plans are legal, which fit, and which may be among the best."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moesim.evaluator import evaluate
from moesim.problem import Problem
from moesim.studies.search.bounds import step_bounds
from moesim.studies.search.frames import Frame, frame
from moesim.studies.search.holding import Holdings
from moesim.studies.search.legality import Mask, Memory, Part, Standing, standing, with_methods
from moesim.studies.search.parts import Defaults, Degrees, Region, degrees, regions
from moesim.studies.search.peaks import peak_bytes
from moesim.studies.search.pool import Batch, Pool
from moesim.studies.search.refine import least_times
from moesim.studies.search.space import SHAPE, Axis, Space
from moesim.studies.search.tables import StageKinds, Tables, tables
from moesim.workload.strategy import DEGREES, FIELDS, Strategy

LOOK = 60.0
"""Time after which a few plans are run, so that there is a best one to tell of, and to measure others against. [s]"""
ENOUGH = 20
"""Plans that wait for each one wanted before the first are run: most of those to come are then known to be worse."""
OF_LAYERS = ("recompute", "transport")
"""Methods on which neither the state of a rank nor its messages depend."""
CATEGORIES = tuple(name for name in FIELDS if name not in DEGREES)
OF_TABLES = tuple(name for name in CATEGORIES if name not in (*SHAPE, "overlap_p2p"))
"""Fields that prices and bytes of a layer may depend on."""


@dataclass
class Counts:
    """Plans that were looked at, and what became of them."""

    done: int = 0
    legal: int = 0
    fitting: int = 0
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class _Case:
    """A part in one shape with one choice of methods; ``alive``: its legal columns."""

    part: Part
    before: Standing
    alive: Mask
    methods_key: tuple[Any, ...]


class Walk:
    """One search. Counts and the pool are right at any time, so that it can be stopped.

    :meth:`run` walks through all :meth:`parts` one after another. Parts are independent: a process that has its own walk
    of the same space can :meth:`run_part` any of them in any order, and then ``pool.finish()``. Counts of the parts
    and of :meth:`parts` itself (what no part has to look at) add up to those of the whole, and the best of the bests is
    the best. A pool that knows good plans already (``pool.best``) leaves out more; counts of what is left out
    depend on it, those of legal and refused plans do not.
    """

    def __init__(self, space: Space, pool: Pool) -> None:
        self.space, self.pool, self.counts = space, pool, Counts()
        self._problem = space.problem
        self.capacity = float(space.problem.machine.gpu.memory_capacity)
        self.kinds, self.holdings = StageKinds(space.problem), Holdings()
        self.names = tuple(axis.name for axis in space.methods)
        self._looked = time.monotonic()

    def run(self, told: Callable[[], None]) -> None:
        """Walk through the space; ``told`` is called now and then."""
        for part in self.parts():
            self.run_part(part, told)
        self.pool.finish()

    def parts(self) -> Iterator[Region]:
        """Independent parts of the space, the most promising first; they can be pickled."""
        yield from regions(self.space)

    def run_part(self, part: Region, told: Callable[[], None] = lambda: None) -> None:
        """Walk through a part: count what it has, and leave with the pool what may be among the best."""
        block = _Block(self, degrees(self.space, part.flat), told)
        for methods in _choices(self.space.methods):
            block.walk(methods)
            first = not self.pool.best and self.pool.size > ENOUGH * self.pool.top
            if first or time.monotonic() - self._looked > LOOK:
                self.pool.run(self.pool.top)
                self._looked = time.monotonic()


def _choices(axes: tuple[Axis, ...]) -> Iterator[dict[str, Any]]:
    names = [axis.name for axis in axes]
    for values in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip(names, values, strict=True))


class _Block:
    """A block of degrees; what is the same for several methods is worked out once."""

    def __init__(self, walk: Walk, degrees: Degrees, told: Callable[[], None]) -> None:
        self._told = told
        self._walk, self._degrees = walk, degrees
        self._problem: Problem = walk.space.problem
        self._defaults = Defaults(walk.space, degrees)
        self._memory = Memory(self._problem)
        self._standing: dict[tuple[Any, ...], Standing] = {}
        self._frames: dict[tuple[Any, ...], Frame] = {}
        self._shapes = list(_choices(walk.space.part(SHAPE)))
        self._left = math.prod(len(axis.values) for axis in walk.space.methods)  # choices of methods to come
        self._fixed = tuple(name for name in CATEGORIES if name not in walk.names)
        self._state = tuple(name for name in walk.names if name not in OF_LAYERS)

    def walk(self, methods: Mapping[str, Any]) -> None:
        """Look at all shapes with one choice of methods."""
        groups: dict[tuple[Any, ...], list[_Case]] = {}
        living = []
        for shape in self._shapes:
            parts = self._defaults.parts({**shape, **methods})
            known = [self._stands(part) for part, _ in parts]
            dead = not any(one.alive.any() for one in known)
            if dead and not self._defaults.follow(self._walk.names):
                for (_, index), one in zip(parts, known, strict=True):
                    self._refuse(one, len(index), self._left)
                continue
            living.append(shape)
            for (part, index), one in zip(parts, known, strict=True):
                self._sort(part, one, len(index), groups)
        self._shapes, self._left = living, self._left - 1
        self._told()
        for cases in groups.values():
            self._group(cases)

    def _key(self, part: Part) -> tuple[Any, ...]:
        return (part.name, *(getattr(part.strategy, name) for name in self._fixed))

    def _stands(self, part: Part) -> Standing:
        """What is known of a part in its shape, whatever the methods are."""
        key = self._key(part)
        if key not in self._standing:
            self._standing[key] = standing(self._memory, self._problem, part, self._walk.names)
        return self._standing[key]

    def _refuse(self, before: Standing, size: int, times: int) -> None:
        """Count a part of which nothing is legal with any of some choices of methods."""
        self._walk.counts.done += times * size
        for rule, count in before.refused.items():
            self._walk.counts.refused[rule] += times * count

    def _sort(self, part: Part, before: Standing, size: int, groups: dict[tuple[Any, ...], list[_Case]]) -> None:
        """Count what is refused, and put the rest with what shares its prices."""
        counts, strategy = self._walk.counts, part.strategy
        alive, refused = with_methods(self._memory, part, before)
        legal = int(np.count_nonzero(alive))
        counts.done += size
        counts.legal += legal
        counts.refused.update(before.refused)
        counts.refused.update(refused)
        if not legal:
            return
        state = (*self._key(part), *(getattr(strategy, name) for name in self._state))
        priced = (part.name, len(before.stages) == 1, *(getattr(strategy, name) for name in OF_TABLES))
        groups.setdefault(priced, []).append(_Case(part, before, alive, state))

    def _group(self, cases: list[_Case]) -> None:
        """Price the layers of parts that share them, and look at each."""
        if not _in_tables(self._problem, cases[0].part.strategy):
            for case in cases:
                self._one_by_one(case)
            return
        union = np.logical_or.reduce([case.before.alive for case in cases])
        columns = np.flatnonzero(union)
        place = np.cumsum(union) - 1
        frames = [self._frame(case) for case in cases]
        used = sorted({kind for one in frames for kind in one.kinds})
        stages = tuple(self._walk.kinds.stages[kind] for kind in used)
        splits = any(one.plan.schedule.splits for one in frames)
        priced = tables(self._problem, _columns(cases[0].part.strategy, columns), stages, splits, tuple(used))
        for case, one in zip(cases, frames, strict=True):
            self._case(case, one, priced, place[one.columns])
            self._told()

    def _frame(self, case: _Case) -> Frame:
        if case.methods_key not in self._frames:
            columns = np.flatnonzero(case.before.alive)
            strategy = _columns(case.part.strategy, columns)
            shared = (self._walk.kinds, self._walk.holdings)
            self._frames[case.methods_key] = frame(self._problem, strategy, case.before, shared, columns)
        return self._frames[case.methods_key]

    def _case(self, case: _Case, one: Frame, priced: Tables, places: np.ndarray) -> None:
        alive = case.alive[one.columns]
        peaks = peak_bytes(one, priced, places)
        fits = alive & (peaks <= self._walk.capacity)
        self._walk.counts.fitting += int(np.count_nonzero(fits))
        if fits.any():
            bounds = step_bounds(one, priced, places)
            may = fits & self._walk.pool.may(bounds, peaks)
            least = least_times(one, priced, places, may)
            batch = Batch(case.part.strategy, one.columns[may], bounds[may], peaks[may], least)
            self._walk.pool.add(batch)

    def _one_by_one(self, case: _Case) -> None:
        """Run what the tables do not cover."""
        columns = np.flatnonzero(case.alive)
        batch = Batch(case.part.strategy, columns, np.zeros(len(columns)), np.zeros(len(columns)))
        found = evaluate(self._problem, [batch.plan(place) for place in range(len(columns))])
        self._walk.counts.fitting += int(np.count_nonzero(found.fits))
        exact = Batch(case.part.strategy, columns, found.step_time_s, found.peak_bytes)
        self._walk.pool.add(exact.only(found.fits))


def _columns(strategy: Strategy, columns: np.ndarray) -> Strategy:
    return strategy.replace(**{name: np.asarray(getattr(strategy, name))[columns] for name in DEGREES})


def _in_tables(problem: Problem, strategy: Strategy) -> bool:
    """Whether what a layer takes and keeps follows from its own degrees and methods alone."""
    return not (
        problem.documents is not None
        or problem.machine.runtime.local_accumulation
        or strategy.two_batch_overlap
        or strategy.activation_offload
    )
