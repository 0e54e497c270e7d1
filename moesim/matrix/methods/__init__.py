"""The methods, columns of the matrix: what is set against what, as data. One file for each group of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moesim.base.registry import Registry

GROUPS = ("state", "experts", "sequence and depth", "memory", "kernels", "execution", "placement", "fusion")
"""Groups of methods, in the order of the columns."""


@dataclass(frozen=True)
class Pair:
    """A step with the method set against one without.

    Attributes
    ----------
    against
        What the method is set against, in words.
    on, off
        What each side changes in the situation.
    both
        What both sides change first.
    families
        Kinds of cost that this pair answers; all where it is empty.
    """

    against: str
    on: Mapping[str, Any]
    off: Mapping[str, Any]
    both: Mapping[str, Any] = field(default_factory=dict)
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class Knob:
    """One way to have the method: what it changes on the side with it, and on both sides."""

    name: str
    on: Mapping[str, Any] = field(default_factory=dict)
    both: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A column of the matrix.

    Attributes
    ----------
    title
        As the report calls it.
    group
        Group of methods that it stands with.
    place
        Column, from the left.
    pairs
        What it is set against; where two say different things, the cell depends.
    knobs
        Ways to have it; where they say different things, the cell depends.
    classes
        Classes of traffic that it makes or changes.
    needs
        An expression of what a situation must have for the method to mean anything; empty for nothing.
    second
        Whether it belongs to the second set, which the report's figure does not show.
    """

    title: str
    group: str
    place: int
    pairs: tuple[Pair, ...]
    knobs: tuple[Knob, ...] = (Knob(""),)
    classes: tuple[str, ...] = ()
    needs: str = ""
    second: bool = False


methods: Registry[Method] = Registry("method", package="moesim.matrix.methods", entry_points="moesim.methods")


def columns(second: bool = False) -> list[str]:
    """Names in the order of the columns, with or without those of the second set."""
    from moesim.matrix.methods.registered import add_registered

    add_registered()
    entries = sorted(methods.entries(), key=lambda entry: (entry.item.second, entry.item.place, entry.name))
    return [entry.name for entry in entries if second or not entry.item.second]
