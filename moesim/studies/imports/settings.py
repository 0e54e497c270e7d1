"""Settings of a framework's configuration as written: names, values, and where each stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from moesim.base.errors import Collector

OFF = (None, False, "false", "False", "null", "none", "None", "")
"""What a setting that is not set reads as."""


@dataclass(frozen=True)
class Setting:
    """One setting: its name as written, its value, and its line."""

    name: str
    value: Any
    line: int | None = None

    @property
    def shown(self) -> str:
        """As a comment shows it."""
        return self.name if self.value is True else f"{self.name} = {self.value}"


@dataclass
class Settings:
    """The settings of one file, by a common name; each is taken at most once by what understands it.

    Parameters
    ----------
    where
        What messages call the file.
    """

    where: str
    given: dict[str, Setting] = field(default_factory=dict)
    understood: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    problems: Collector = field(default_factory=Collector)

    def has(self, name: str) -> bool:
        """Whether a setting is given and not off."""
        return name in self.given and self.given[name].value not in OFF

    def take(self, name: str) -> Any:
        """Value of a setting, None where it is off or not given; from now on it is understood."""
        self.understood.add(name)
        return self.given[name].value if self.has(name) else None

    def flag(self, name: str) -> bool | None:
        """Whether a switch is on; None where it is not given."""
        self.understood.add(name)
        return self.has(name) if name in self.given else None

    def number(self, name: str, kind: Callable[[str], Any] = int) -> Any:
        """A number, None where it is not given; one that is none is noted as a problem."""
        value = self.take(name)
        if value is None:
            return None
        try:
            return kind(str(value))
        except ValueError:
            self.refuse(name, f"'{value}' is no {'whole number' if kind is int else 'number'}")
            return None

    def refuse(self, name: str, what: str, fix: str = "") -> None:
        """Note a problem with a setting."""
        setting = self.given.get(name)
        where = self.where if setting is None or setting.line is None else f"{self.where}:{setting.line}"
        self.problems.add(where, name if setting is None else setting.name, what, fix)

    def rest(self, ignored: Callable[[str], bool]) -> tuple[list[Setting], list[Setting]]:
        """Settings that nothing has taken: those not understood, and those that cost no time and no memory."""
        left = [setting for name, setting in self.given.items() if name not in self.understood]
        names = [name for name in self.given if name not in self.understood]
        unknown = [s for name, s in zip(names, left, strict=True) if not ignored(name) and s.value not in OFF]
        return unknown, [s for name, s in zip(names, left, strict=True) if ignored(name)]


def names(value: Any) -> list[str]:
    """The words of a list, however it is written."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    return [str(item) for item in value] if isinstance(value, Iterable) else [str(value)]
