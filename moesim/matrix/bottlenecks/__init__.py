"""The bottlenecks, rows of the matrix: each a function that reads one quantity off a step. More of it is worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moesim.base.numeric import Numeric
from moesim.base.registry import Registry
from moesim.matrix.case import Case, Terms

FAMILIES = (
    "state",
    "update",
    "activations",
    "balance",
    "traffic",
    "layout",
    "compute",
    "host",
    "waiting",
    "checkpoint",
)
"""Kinds of cost, in the order of the rows."""


@dataclass(frozen=True)
class Bottleneck:
    """A row of the matrix.

    Attributes
    ----------
    title
        As the report calls it.
    family
        Kind of cost, by which a method may choose what it is set against.
    unit
        ``B``, ``s`` or ``-``, per rank and step unless the summary says otherwise.
    read
        The quantity by its terms, which add up to it.
    place
        Row, from the top.
    by_class
        Terms are classes of traffic: of those, only what the method makes or changes itself counts.
    absent
        What scenarios say in which there is nothing of it on either side, if all do: ``same``, no effect; ``unasked``,
        nothing. Where others have some, they never count.
    scale
        What a change is set against where that is not the larger of both sides.
    routing
        Where it is asked: with ``even`` experts, where some are ``skewed``, or in ``any`` situation.
    priced
        Seconds that are made of the prices of kernels and messages: changes of less than their error count as none.
    run
        Classes of traffic whose terms are read off a step that was run; such steps are run together.
    ties
        Further readings; where one says that nothing changes, the next is asked: messages of equal bytes, and the seconds
        in which links carry them.
    """

    title: str
    family: str
    unit: str
    read: Callable[[Case], Terms]
    place: int
    by_class: bool = False
    absent: str = "same"
    scale: Callable[[Case], Numeric] | None = None
    routing: str = "even"
    priced: bool = False
    run: tuple[str, ...] = ()
    ties: tuple[Callable[[Case], Terms], ...] = ()


bottlenecks: Registry[Bottleneck] = Registry(
    "bottleneck", package="moesim.matrix.bottlenecks", entry_points="moesim.bottlenecks"
)


def asked(row: Bottleneck, skewed: bool) -> bool:
    """Whether a bottleneck is asked in situations with skewed experts, or in those without."""
    return row.routing in ("any", "skewed" if skewed else "even")


def rows() -> list[str]:
    """Names in the order of the rows."""
    entries = sorted(bottlenecks.entries(), key=lambda entry: (entry.item.place, entry.name))
    return [entry.name for entry in entries]


def total(terms: Terms, classes: tuple[str, ...] | None = None) -> object:
    """Sum of the terms; of some classes only where these are given."""
    return sum((value for name, value in terms.items() if classes is None or name in classes), 0.0)
