"""Work that is asked for again and again, done once."""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Once:
    """Keeps what was made, as long as it lives itself; what is made of it must follow from it."""

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    def once(self, name: Hashable, work: object, made: Callable[[], T]) -> T:
        """What is `made` of the work, the first time that it is asked for under this name; equal works are one."""
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
    if isinstance(work, np.ndarray):
        return (work.dtype.str, work.shape, work.tobytes())
    if isinstance(work, tuple):
        return tuple(_comparable(part) for part in work)
    if is_dataclass(work):
        return (type(work), *(_comparable(getattr(work, field.name)) for field in fields(work)))
    assert isinstance(work, Hashable)
    return work
