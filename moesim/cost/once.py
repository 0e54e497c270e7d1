"""Work that is asked for again and again, done once."""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Once:
    """Keeps what was made, as long as it lives itself; what is made of it must follow from it."""

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _same(self) -> dict[Hashable, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what is known by identity, which another process gives to other objects."""
        return {name: value for name, value in vars(self).items() if name != "_same"}

    def once(self, name: Hashable, work: object, made: Callable[[], T]) -> T:
        """What is `made` of the work, the first time that it is asked for under this name; equal works are one."""
        if type(work) is tuple:  # put together by whoever asks, so no other time the same one
            return self._equal(name, work, made)
        same = (name, id(work))
        found = self._same.get(same)
        if found is None:
            found = self._same[same] = (self._equal(name, work, made), work)  # kept, so that no other gets its id
        value: T = found[0]
        return value

    def _equal(self, name: Hashable, work: object, made: Callable[[], T]) -> T:
        key: Hashable = (name, work)
        try:
            found = self._known.get(key)
        except TypeError:
            key = (name, _comparable(work))
            found = self._known.get(key)
        if found is None:
            found = self._known[key] = (made(),)
        value: T = found[0]
        return value


def _comparable(work: object) -> Hashable:
    """The same with the bytes of arrays in their place, which can be compared."""
    kind: type = type(work)
    if kind is np.ndarray:
        assert isinstance(work, np.ndarray)
        return (work.dtype.str, work.shape, work.tobytes())
    if kind is tuple:
        assert isinstance(work, tuple)
        return tuple(map(_comparable, work))
    names = _names(kind)
    if names is not None:
        return (kind, *[_comparable(getattr(work, name)) for name in names])
    assert isinstance(work, Hashable)
    return work


@lru_cache(maxsize=1024)
def _names(kind: type) -> tuple[str, ...] | None:
    """Fields of a dataclass; None for others, and for those of which each object equals itself alone."""
    compared = is_dataclass(kind) and kind.__eq__ is not object.__eq__
    return tuple(field.name for field in fields(kind)) if compared else None
