"""A block of degrees in all shapes and with all methods: what is legal, what may be good, what fits."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.cost.once import Once
from moesim.evaluator import evaluate
from moesim.problem import Problem
from moesim.studies.search.bounds import step_bounds
from moesim.studies.search.floors import floors, relaxed
from moesim.studies.search.frames import Frame, frame
from moesim.studies.search.holding import Holdings, Recent
from moesim.studies.search.legality import Mask, Memory, Part, Standing, shape_refusal, standing, with_methods
from moesim.studies.search.parts import Defaults, Degrees
from moesim.studies.search.peaks import peak_bytes
from moesim.studies.search.pool import Batch, Pool
from moesim.studies.search.refine import least_times
from moesim.studies.search.space import SHAPE, Axis, Space
from moesim.studies.search.tables import Array, StageKinds, Tables, tables
from moesim.timeline.schedules import find_schedule
from moesim.workload.strategy import DEGREES, FIELDS, Strategy

PIECE = 8192
"""Columns that are priced at a time."""
SLACK = 1e-9
"""Share by which a sum of bytes in another order may be larger. [-]"""
OF_LAYERS = ("recompute", "transport")
"""Methods on which neither the state of a rank nor its messages depend."""
CATEGORIES = tuple(name for name in FIELDS if name not in DEGREES)
PRICED = tuple(name for name in CATEGORIES if name not in (*SHAPE, *OF_LAYERS))
"""Fields, beside degrees, that prices of operations may depend on."""
SHARED = 8
"""Sets of columns whose prices are kept."""
OF_TABLES = tuple(name for name in CATEGORIES if name not in (*SHAPE, "overlap_p2p"))
"""Fields that prices and bytes of a layer may depend on."""


@dataclass
class Counts:
    """Plans of which it is known what becomes of them.

    ``done`` of them, of which some are ``legal``, and each of the others is ``refused`` by a rule. Of the legal ones,
    some are ``bounded``: a bound of their step says that they are none of the best, so that nobody asked whether they
    fit. Of the others, some are ``fitting``.
    """

    done: int = 0
    legal: int = 0
    bounded: int = 0
    fitting: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def choices(axes: Iterable[Axis]) -> Iterator[dict[str, Any]]:
    """All combinations of the values of axes."""
    axes = tuple(axes)
    names = [axis.name for axis in axes]
    for values in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip(names, values, strict=True))


class Shared:
    """What all blocks of a search share."""

    def __init__(self, space: Space, pool: Pool, counts: Counts) -> None:
        self.space, self.pool, self.counts = space, pool, counts
        self.problem: Problem = space.problem
        self.capacity = float(space.problem.machine.gpu.memory_capacity)
        self.kinds, self.holdings = StageKinds(space.problem), Holdings()
        self.methods = {axis.name: axis.values for axis in space.methods}
        self.names = tuple(self.methods)
        self.num_methods = math.prod(len(axis.values) for axis in space.methods)
        varied = {axis.name for axis in space.axes}
        self.fixed = frozenset(FIELDS) - varied - set(space.free)
        self.recomputes = "recompute" in varied

    @cached_property
    def shapes(self) -> tuple[list[dict[str, Any]], Counter[str]]:
        """Shapes of pipelines that may be legal, and how many others each rule refuses."""
        memory, refused, living = Memory(self.problem), Counter[str](), []
        for shape in choices(self.space.part(SHAPE)):
            rule = shape_refusal(
                memory, self.problem.strategy.replace(**shape), (self.fixed - set(DEGREES)) | set(SHAPE)
            )
            if rule is None:
                living.append(shape)
            else:
                refused[rule] += 1
        return living, refused


@dataclass(frozen=True, eq=False)
class _Case:
    """A part in one shape with one choice of methods but for what it recomputes, ``policies``: each with the same legal columns.

    ``alive``: these columns; ``state``: what its frame follows from.
    """

    part: Part
    before: Standing
    alive: Mask
    state: tuple[Any, ...]
    policies: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Found:
    """Columns of a block with a legal plan: their places, a step that none of their plans beats, how many these are."""

    columns: NDArray[np.int64]
    floors: Array
    legal: NDArray[np.int64]


class Block:
    """A block of degrees; what is the same for several methods is worked out once."""

    def __init__(self, shared: Shared, degrees: Degrees, told: Callable[[], None]) -> None:
        self._shared, self._degrees, self._told = shared, degrees, told
        self._problem = shared.problem
        self._defaults = Defaults(shared.space, degrees)
        self._memory = Memory(self._problem)
        self._standing: dict[tuple[Any, ...], Standing] = {}
        self._frames: dict[tuple[Any, ...], Frame] = {}
        self._prices: Recent[Once] = Recent(SHARED)
        self._fixed = tuple(name for name in CATEGORIES if name not in shared.names)
        self._state = tuple(name for name in shared.names if name not in OF_LAYERS)
        self._tables = tuple(name for name in OF_TABLES if name != "recompute")

    def look(self) -> Found:
        """Count what is refused, and bound the rest by columns."""
        shared, counts = self._shared, self._shared.counts
        legal = np.zeros(self._degrees.size, dtype=np.int64)
        outer = [name for name in shared.names if name in self._tables]
        own = [name for name in self._tables if name not in shared.names]
        priced: dict[tuple[Any, ...], tuple[Part, NDArray[np.int64], Mask, list[bool]]] = {}
        methods = list(choices(shared.space.methods))
        for shape in shared.shapes[0]:
            self._standing.clear()
            splits = find_schedule(shape.get("schedule", self._problem.strategy.schedule)).splits
            for part, index, alive, refused, some in self._parts(shape, methods):
                here, times = int(np.count_nonzero(alive)), len(some)
                counts.done += times * (len(index) - here)
                for rule, count in refused.items():
                    counts.refused[rule] += times * count
                if not here:
                    continue
                legal[index] += times * alive
                fixed = tuple(getattr(part.strategy, name) for name in own)
                for chosen in {tuple(one[name] for name in outer): one for one in some}.values():
                    key = (part.name, *(chosen[name] for name in outer), *fixed)
                    if key not in priced:
                        strategy = relaxed(part.strategy.replace(**chosen), shared.recomputes)
                        priced[key] = (Part(part.name, strategy), index, alive.copy(), [splits])
                    else:
                        priced[key][2][:] |= alive
                        priced[key][3].append(splits)
            self._told()
        self._standing.clear()
        least = np.full(len(legal), np.inf)
        for part, index, alive, split in priced.values():
            for columns in np.array_split(np.flatnonzero(alive), math.ceil(np.count_nonzero(alive) / PIECE)):
                found: Any = 0.0
                if _in_tables(self._problem, part.strategy):
                    strategy = _columns(part.strategy, columns)
                    found = floors(self._problem, strategy, any(split), self._shared_prices(strategy))
                least[index[columns]] = np.minimum(least[index[columns]], found)
                self._told()
        living = np.flatnonzero(legal)
        return Found(living, least[living], legal[living])

    def _parts(
        self, shape: Mapping[str, Any], methods: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[Part, NDArray[np.int64], Mask, Counter[str], Sequence[dict[str, Any]]]]:
        """Parts of a shape: columns, legal ones, refusals, and the choices of methods with which they are these.

        The strategies of the parts have the methods of any of the choices.
        """
        each = [(one,) for one in methods] if self._defaults.follow(self._shared.names) else [methods]
        for some in each:
            for part, index, one in self._stood({**shape, **some[0]}):
                if not one.pending or not one.alive.any():
                    yield part, index, one.alive, one.refused, some
                    continue
                alike: dict[int, tuple[Mask, Counter[str], list[dict[str, Any]]]] = {}
                for chosen in some:
                    alive, refused = with_methods(self._memory, part, one, chosen)
                    alike.setdefault(id(alive), (alive, refused, []))[2].append(chosen)
                for alive, refused, alike_ones in alike.values():
                    yield part, index, alive, one.refused + refused, alike_ones

    def _stood(self, values: Mapping[str, Any]) -> list[tuple[Part, NDArray[np.int64], Standing]]:
        return [(part, index, self._stands(part)) for part, index in self._defaults.parts(values)]

    def _key(self, part: Part) -> tuple[Any, ...]:
        return (part.name, *(getattr(part.strategy, name) for name in self._fixed))

    def _stands(self, part: Part) -> Standing:
        """What is known of a part in its shape, whatever the methods are."""
        key = self._key(part)
        if key not in self._standing:
            self._standing[key] = standing(self._memory, self._problem, part, self._shared.methods)
        return self._standing[key]

    def walk(self) -> None:
        """Look at all legal plans of the block, and leave with the pool what may be among the best."""
        shared = self._shared
        inner = tuple(axis for axis in shared.space.methods if axis.name == "recompute")
        outer = tuple(axis for axis in shared.space.methods if axis.name != "recompute")
        for chosen in choices(outer):
            methods = [chosen | one for one in choices(inner)]
            groups: dict[tuple[Any, ...], list[_Case]] = {}
            for shape in shared.shapes[0]:
                for part, _, alive, _, some in self._parts(shape, methods):
                    if alive.any():
                        self._sort(part, alive, some, groups)
            for cases in groups.values():
                self._group(cases)
                if shared.pool.promises():
                    shared.pool.run(shared.pool.top)  # what is to come is measured against them

    def _sort(
        self,
        part: Part,
        alive: Mask,
        methods: Sequence[dict[str, Any]],
        groups: dict[tuple[Any, ...], list[_Case]],
    ) -> None:
        """Put a part with what shares its prices but for what is recomputed."""
        counts, strategy, before = self._shared.counts, part.strategy.replace(**methods[0]), self._stands(part)
        legal = len(methods) * int(np.count_nonzero(alive))
        counts.done += legal
        counts.legal += legal
        state = (*self._key(part), *(getattr(strategy, name) for name in self._state))
        priced = (part.name, len(before.stages) == 1, *(getattr(strategy, name) for name in self._tables))
        policies = tuple(one.get("recompute", strategy.recompute) for one in methods)
        groups.setdefault(priced, []).append(_Case(Part(part.name, strategy), before, alive, state, policies))

    def _group(self, cases: list[_Case]) -> None:
        """Bound parts that share what they do not recompute, price what is left of them, and look at each."""
        if not _in_tables(self._problem, cases[0].part.strategy):
            for case in cases:
                self._one_by_one(case)
            return
        shared = self._shared
        frames = {case.state: self._frame(case) for case in cases}
        by_policy: dict[tuple[str, ...], list[_Case]] = {}
        for case in cases:
            for policy in case.policies:
                by_policy.setdefault(policy, []).append(case)
        least = relaxed(cases[0].part.strategy, self._shared.recomputes)
        left = {}
        for case in cases:
            one = frames[case.state]
            left[id(case)] = case.alive[one.columns] & (one.least_bytes <= shared.capacity * (1 + SLACK))
        cases = [case for case in cases if left[id(case)].any()]
        if not cases:
            return
        frames = {case.state: frames[case.state] for case in cases}  # the kinds of stages of the others are not priced
        base = None
        if len(by_policy) > 1 or least.recompute not in by_policy:
            base = self._price(least, cases, left, frames)
            by_state: dict[tuple[Any, ...], list[_Case]] = {}
            for case in cases:
                by_state.setdefault(case.state, []).append(case)
            for state, some in by_state.items():
                one = frames[state]
                bounds = step_bounds(one, base[0], base[1][one.columns])
                may = shared.pool.may(bounds, np.zeros(len(bounds)))
                for case in some:
                    shared.counts.bounded += len(case.policies) * int(np.count_nonzero(left[id(case)] & ~may))
                    left[id(case)] = left[id(case)] & may
                self._told()
        for policy, some in by_policy.items():
            some = [case for case in some if left[id(case)].any()]
            if not some:
                continue
            same = base is not None and policy == least.recompute
            strategy = some[0].part.strategy.replace(recompute=policy)
            priced, place = base if same and base else self._price(strategy, some, left, frames)
            for case in some:
                one = frames[case.state]
                strategy = case.part.strategy.replace(recompute=policy)
                self._case(strategy, one, priced, place[one.columns], left[id(case)])
                self._told()

    def _price(
        self, strategy: Strategy, cases: list[_Case], left: Mapping[int, Mask], frames: Mapping[tuple[Any, ...], Frame]
    ) -> tuple[Tables, NDArray[np.int64]]:
        """Prices of the columns that are left of some cases, and the place of each column of their part among them."""
        union = np.zeros(len(cases[0].alive), dtype=bool)
        for case in cases:
            union[frames[case.state].columns[left[id(case)]]] = True
        some = [frames[case.state] for case in cases]
        used = sorted({kind for one in some for kind in one.kinds})
        stages = tuple(self._shared.kinds.stages[kind] for kind in used)
        splits = any(one.plan.schedule.splits for one in some)
        strategy = _columns(strategy, np.flatnonzero(union))
        priced = tables(self._problem, strategy, stages, splits, tuple(used), self._shared_prices(strategy))
        return priced, np.maximum(np.cumsum(union) - 1, 0)  # columns that are left out stand for any

    def _shared_prices(self, strategy: Strategy) -> Once:
        """Prices of operations that do not depend on what is recomputed and how rows are exchanged."""
        degrees = (np.asarray(getattr(strategy, name)).tobytes() for name in DEGREES)
        return self._prices.of((*degrees, *(getattr(strategy, name) for name in PRICED)), Once)

    def _frame(self, case: _Case) -> Frame:
        if case.state not in self._frames:
            columns = np.flatnonzero(case.before.alive)
            strategy = _columns(case.part.strategy, columns)
            shared = (self._shared.kinds, self._shared.holdings)
            self._frames[case.state] = frame(self._problem, strategy, case.before, shared, columns)
        return self._frames[case.state]

    def _case(self, strategy: Strategy, one: Frame, priced: Tables, places: NDArray[np.int64], left: Mask) -> None:
        shared = self._shared
        bounds = step_bounds(one, priced, places)
        may = left & shared.pool.may(bounds, np.zeros(len(bounds)))
        shared.counts.bounded += int(np.count_nonzero(left & ~may))
        if not may.any():
            return
        columns = np.flatnonzero(may)
        peaks = peak_bytes(one, priced, places, columns)
        fits = peaks <= shared.capacity
        columns, peaks = columns[fits], peaks[fits]
        shared.counts.fitting += len(columns)
        good = shared.pool.may(bounds[columns], peaks)
        columns, peaks = columns[good], peaks[good]
        if len(columns):
            least = least_times(one, priced, places, columns)
            shared.pool.add(Batch(strategy, one.columns[columns], bounds[columns], peaks, least))

    def _one_by_one(self, case: _Case) -> None:
        """Run what the tables do not cover."""
        columns = np.flatnonzero(case.alive)
        for policy in case.policies:
            strategy = case.part.strategy.replace(recompute=policy)
            batch = Batch(strategy, columns, np.zeros(len(columns)), np.zeros(len(columns)))
            found = evaluate(self._problem, [batch.plan(place) for place in range(len(columns))])
            self._shared.counts.fitting += int(np.count_nonzero(found.fits))
            exact = Batch(strategy, columns, found.step_time_s, found.peak_bytes)
            self._shared.pool.add(exact.only(found.fits))


def _columns(strategy: Strategy, columns: NDArray[np.int64]) -> Strategy:
    return strategy.replace(**{name: np.asarray(getattr(strategy, name))[columns] for name in DEGREES})


def _in_tables(problem: Problem, strategy: Strategy) -> bool:
    """Whether what a layer takes and keeps follows from its own degrees and methods alone."""
    return not (
        problem.documents is not None
        or problem.machine.runtime.local_accumulation
        or strategy.two_batch_overlap
        or strategy.activation_offload
        or strategy.expert_offload
    )
