"""The columns of a search: all combinations of degrees, in blocks, and what defaults make of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.studies.search.legality import DERIVED, Part
from moesim.studies.search.space import Space
from moesim.workload.strategy import DEGREES, FIELDS, OFF, Strategy

Columns = dict[str, NDArray[np.float64]]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Degrees:
    """A block of combinations of degrees. (n,)"""

    columns: Columns

    @property
    def size(self) -> int:
        """Number of combinations."""
        return len(self.columns["tp"])


def degrees(space: Space, flat: Index) -> Degrees:
    """Some combinations of the degrees of a space, by their places among all."""
    axes = {axis.name: np.array(axis.values, dtype=float) for axis in space.part(DEGREES)}
    lengths = [len(values) for values in axes.values()]
    places = np.unravel_index(flat, lengths) if lengths else ()
    varied = {name: values[place] for (name, values), place in zip(axes.items(), places, strict=True)}
    fixed = {name: np.full(len(flat), float(getattr(space.problem.strategy, name))) for name in DEGREES}
    return Degrees(fixed | varied)


class Defaults:
    """What the software makes of the fields that nobody says, for all columns of a block."""

    def __init__(self, space: Space, degrees: Degrees) -> None:
        self._space, self._degrees = space, degrees
        problem = space.problem
        self._open = space.free
        reset = {name: OFF[name] for name in self._open if name not in DEGREES}
        self._start = problem.strategy.replace(**reset)
        names = set().union(*(problem.software.defaults[name].names for name in self._open))
        used = {field for name in names for field in DERIVED.get(name, (name,))}
        self._keys = tuple(sorted((used | {"pp"}) & set(FIELDS) - set(DEGREES)))
        self._known: dict[tuple[Any, ...], list[tuple[int, dict[str, Any], Columns, Index]]] = {}
        self._count = itertools.count()
        self._names: dict[tuple[Any, ...], int] = {}

    def follow(self, names: Sequence[str]) -> bool:
        """Whether a default follows from one of some fields."""
        return not set(self._keys).isdisjoint(names)

    def parts(self, values: Mapping[str, Any]) -> list[tuple[Part, Index]]:
        """The columns with the shape and methods of ``values``; those of which defaults make the same are a part."""
        strategy = self._start.replace(**values)
        key = tuple(getattr(strategy, name) for name in self._keys)
        if key not in self._known:
            self._known[key] = self._split(strategy)
        return [
            (Part(name, strategy.replace(**made, **columns)), index) for name, made, columns, index in self._known[key]
        ]

    def _split(self, strategy: Strategy) -> list[tuple[int, dict[str, Any], Columns, Index]]:
        software = self._space.problem.software
        found: list[tuple[Strategy, dict[str, Any], Index]] = [
            (strategy.replace(**self._degrees.columns), {}, np.arange(self._degrees.size))
        ]
        for name in self._open:
            following = []
            for one, made, index in found:
                values = self._space.problem.candidate(one).values() if software.defaults[name].cases else {}
                for value, applies in software.defaults[name].choices(values):
                    where = np.broadcast_to(np.asarray(applies, dtype=bool), index.shape)
                    if where.any():
                        value = tuple(value) if isinstance(value, list) else value
                        following.append(_with(one, made, index, where, name, value))
            found = following
        return [self._named(one, made, index) for one, made, index in found]

    def _named(
        self, strategy: Strategy, made: dict[str, Any], index: Index
    ) -> tuple[int, dict[str, Any], Columns, Index]:
        """The part under a number that parts of the same columns share."""
        columns = {name: np.asarray(getattr(strategy, name)) for name in DEGREES}
        key = (index.tobytes(), *(columns[name].tobytes() for name in DEGREES if name in self._open))
        if key not in self._names:
            self._names[key] = next(self._count)
        return self._names[key], made, columns, index


def _with(
    strategy: Strategy, made: dict[str, Any], index: Index, where: NDArray[np.bool_], name: str, value: Any
) -> tuple[Strategy, dict[str, Any], Index]:
    """The columns in which a default has one value, with it."""
    columns = {other: np.asarray(getattr(strategy, other)) for other in DEGREES}
    if not where.all():
        columns, index = {other: values[where] for other, values in columns.items()}, index[where]
    if name in DEGREES:
        columns[name] = np.full(len(index), float(value))
        return strategy.replace(**columns), made, index
    return strategy.replace(**columns, **{name: value}), made | {name: value}, index
