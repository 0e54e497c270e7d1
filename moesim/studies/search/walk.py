"""The walk through a space: refusals first, then its parts in the order of what none of their plans can beat."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from moesim.studies.search.block import Block, Counts, Shared
from moesim.studies.search.legality import Memory
from moesim.studies.search.parts import Index, degrees
from moesim.studies.search.pool import Pool
from moesim.studies.search.space import Space
from moesim.studies.search.tables import Array
from moesim.workload.strategy import DEGREES

LOOKED = 32_768
"""Columns of degrees whose legality is looked at together, so that memory stays the same whatever the space."""
FIRST, GROWTH, MOST = 512, 2, 2048
"""Columns of the first part, which finds good plans; how much larger each next one is; and those of the largest."""


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a space that can be walked by itself: some combinations of the degrees, with all that is not a degree.

    It can be pickled. ``number``: its place in the order of the regions, the same in every run of the same search;
    ``flat``: places of its combinations among all of the degrees; ``floors``: what no plan of a combination can beat [s];
    ``legal``: legal plans of each. (n,)
    """

    number: int
    flat: Index
    floors: Array
    legal: Index


class Walk:
    """One search. Counts and the pool are right at any time, so that it can be stopped.

    :meth:`run` walks through all :meth:`parts` one after another. Parts are independent: a process that has its own walk
    of the same space can :meth:`run_part` any of them in any order. Counts of the parts and of :meth:`parts` itself (what
    is refused, which no part looks at again) add up to those of the whole, and the best of the bests is the best. A
    pool that knows good plans already (``pool.best``) leaves out more: then more plans are ``bounded``, and fewer are
    ``fitting``; other counts are the same.
    """

    def __init__(self, space: Space, pool: Pool) -> None:
        self.space, self.pool, self.counts = space, pool, Counts()
        self._shared = Shared(space, pool, self.counts)

    def begin(self, pool: Pool) -> None:
        """Begin again with another pool, and count from nothing; what is known of the space stays."""
        self.pool, self.counts = pool, Counts()
        self._shared.pool, self._shared.counts = pool, self.counts

    def run(self, told: Callable[[], None] = lambda: None) -> None:
        """Walk through the space; ``told`` is called now and then."""
        for part in self.parts(told):
            self.run_part(part, told)

    def parts(self, told: Callable[[], None] = lambda: None) -> Iterator[Region]:
        """Independent parts of the space, the most promising first. What is refused is counted before the first one."""
        shared, counts = self._shared, self.counts
        total = math.prod(len(axis.values) for axis in self.space.part(DEGREES))
        living, refused = shared.shapes
        for rule, count in refused.items():
            counts.refused[rule] += count * total * shared.num_methods
            counts.done += count * total * shared.num_methods
        flats, floors, legals = [], [], []
        for start in range(0, total if living else 0, LOOKED):
            flat = self._legal_degrees(np.arange(start, min(start + LOOKED, total)))
            if len(flat):
                found = Block(shared, degrees(self.space, flat), told).look()
                flats.append(flat[found.columns])
                floors.append(found.floors)
                legals.append(found.legal)
        if flats:
            yield from _regions(np.concatenate(flats), np.concatenate(floors), np.concatenate(legals))

    def _legal_degrees(self, flat: Index) -> Index:
        """Combinations of degrees that no rule refuses whatever shape and methods are."""
        shared, counts = self._shared, self.counts
        columns = degrees(self.space, flat).columns
        free = {name: values for name, values in columns.items() if name not in self.space.free}
        fields = shared.fixed | set(free)
        strategy = self.space.problem.strategy.replace(**columns)
        alive = np.ones(len(flat), dtype=bool)
        times = len(shared.shapes[0]) * shared.num_methods
        for rule, holds in Memory(self.space.problem).settled(strategy, fields):
            out = alive & ~np.asarray(holds)
            if out.any():
                count = times * int(np.count_nonzero(out))
                counts.refused[rule] += count
                counts.done += count
                alive &= ~out
        return flat[alive]

    def run_part(self, part: Region, told: Callable[[], None] = lambda: None) -> None:
        """Walk through a part: count what it has, and run what may be among the best; nothing is left waiting."""
        may = self.pool.may(part.floors, np.zeros(len(part.flat)))
        bounded = int(part.legal[~may].sum())
        self.counts.done += bounded
        self.counts.legal += bounded
        self.counts.bounded += bounded
        told()
        if may.any():
            Block(self._shared, degrees(self.space, part.flat[may]), told).walk()
            self.pool.finish()


def _regions(flat: Index, floors: Array, legal: Index) -> Iterator[Region]:
    """Parts of growing size, in the order of their floors."""
    order = np.argsort(floors, kind="stable")
    start, size, number = 0, FIRST, 0
    while start < len(order):
        some = order[start : start + size]
        yield Region(number, flat[some], floors[some], legal[some])
        start, size, number = start + size, min(GROWTH * size, MOST), number + 1
