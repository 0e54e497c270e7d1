"""Registries: one file for each method, found by import, named in errors and lists.

A registry imports every module of its package on first use and then the entry points of its group, so a new
schedule or transport is one new file here or in another package, and no list has to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from moesim.base.errors import SpecError, did_you_mean

T = TypeVar("T")


@lru_cache(maxsize=4)
def _points(_path: tuple[str, ...]) -> Any:
    """Entry points of all packages on a path; reading them is slow, so once for all registries."""
    from importlib.metadata import entry_points  # slow to import, and only needed here

    return entry_points()


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered item, what it is in one line, and where it comes from."""

    name: str
    summary: str
    source: str
    item: T


class Registry(Generic[T]):
    """Named items of one kind.

    Parameters
    ----------
    kind
        What an item is called in messages, such as ``pipeline schedule``.
    package
        Package whose modules register items when imported.
    entry_points
        Entry-point group through which other packages add theirs: each names a module, or a function to call.

    Examples
    --------
    >>> greetings = Registry[str]("greeting", package="", entry_points="")
    >>> greetings.add("hello", "Hello!", summary="the usual one", source="general knowledge")
    'Hello!'
    >>> greetings.get("helo")
    Traceback (most recent call last):
    moesim.base.errors.SpecError: no greeting 'helo'; did you mean 'hello'? (known: hello)
    """

    def __init__(self, kind: str, *, package: str, entry_points: str) -> None:
        self.kind = kind
        self._package = package
        self._entry_points = entry_points
        self._entries: dict[str, Entry[T]] = {}
        self._loaded = False

    def add(self, name: str, item: T, *, summary: str, source: str) -> T:
        """Register `item` under `name`; a name that is taken is an error of the program."""
        if name in self._entries:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._entries[name] = Entry(name, summary, source, item)
        return item

    def register(self, name: str, *, summary: str, source: str) -> Callable[[T], T]:
        """Return a decorator that registers a class or function under `name`."""

        def decorate(item: T) -> T:
            return self.add(name, item, summary=summary, source=source)

        return decorate

    def remove(self, name: str) -> None:
        """Take an item out again, for tests and interactive work."""
        del self._entries[name]

    def get(self, name: str, where: str = "", path: str = "") -> T:
        """Return the item called `name`, or raise a `SpecError` with a suggestion and the known names."""
        self._load()
        if name not in self._entries:
            raise SpecError.single(where, path, f"no {self.kind} '{name}'", did_you_mean(str(name), self._entries))
        return self._entries[name].item

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._load()
        return sorted(self._entries)

    def entries(self) -> list[Entry[T]]:
        """Return all entries, sorted by name."""
        self._load()
        return [self._entries[name] for name in sorted(self._entries)]

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._entries

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # set first: a module that is being imported may ask the registry
        try:
            self._import_all()
        except BaseException:
            self._loaded = False
            raise

    def _import_all(self) -> None:
        if self._package:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{module.name}")
        if self._entry_points:
            for point in _points(tuple(sys.path)).select(group=self._entry_points):
                loaded = point.load()
                if callable(loaded):
                    loaded()
