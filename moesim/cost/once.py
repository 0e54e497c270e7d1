"""Work that is asked for again and again, done once."""

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """Keeps what was made, as long as it lives itself; what is made of it must follow from it."""

    @cached_property
    def _known(self) -> dict[Hashable, tuple[object, Any]]:
        return {}

    def once(self, name: Hashable, work: object, made: Callable[[], T]) -> T:
        """What is `made` of the work, the first time that it is asked for under this name.

        Equal works are one, as far as they can be compared; works of arrays are one where they are the same object.
        """
        key: Hashable = (name, work)
        try:
            found = self._known.get(key)
        except TypeError:
            key = (name, id(work))
            found = self._known.get(key)
        if found is None:
            found = self._known[key] = (work, made())  # the work is kept, so that no other gets its id
        value: T = found[1]
        return value
