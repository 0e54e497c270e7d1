"""The one rule of all cells: from a quantity with and without a method to a sign."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PLUS, MINUS, DEPENDS, BLANK = "+", "-", "△", ""
SIGNS = (PLUS, MINUS, DEPENDS, BLANK)
SHARE, REST = 0.9, 0.1
"""Scenarios that must agree before a sign is given, and up to which those that change something count for nothing. [-]"""
TOLERANCE, PRICED_TOLERANCE = 1e-3, 2e-2
"""Relative change that counts as none, of what is counted and of what is made of prices of kernels and messages. [-]"""
SHOWN = {PLUS: "reduces", MINUS: "adds", DEPENDS: "depends", BLANK: "no direct effect"}


@dataclass(frozen=True)
class Vote:
    """What the scenarios of one way to have a method say, as shares of those that count. [-]

    ``otherwise``: sign where none counts.
    """

    less: float
    more: float
    count: int
    otherwise: str | None = None

    @property
    def sign(self) -> str | None:
        """Sign of this way; None where no scenario counts."""
        if not self.count:
            return self.otherwise
        changed = self.less + self.more
        if changed <= REST:
            return BLANK
        if self.less >= SHARE * changed:
            return PLUS
        return MINUS if self.more >= SHARE * changed else DEPENDS


def compare(
    on: NDArray[np.float64],
    off: NDArray[np.float64],
    scale: NDArray[np.float64] | None = None,
    tolerance: float = TOLERANCE,
) -> NDArray[np.int64]:
    """-1 where there is less with the method, 1 where there is more, 0 where nothing changes, 2 where there is nothing.

    Parameters
    ----------
    on, off
        The quantity with and without, by scenario.
    scale
        What a change is set against; left out, the larger of both.
    tolerance
        Change over that, below which it counts as none. [-]
    """
    larger = np.maximum(np.abs(on), np.abs(off))
    base = larger if scale is None else scale
    change = on - off
    signs = np.where(change < -tolerance * base, -1, np.where(change > tolerance * base, 1, 0))
    return np.where(larger <= 0, 2, signs)


def vote(signs: Iterable[NDArray[np.int64]], absent: str | None) -> Vote:
    """Shares of all scenarios that count; `absent`: what is said where there are scenarios and none counts."""
    counted = np.concatenate([np.ravel(one) for one in signs] or [np.zeros(0, int)])
    tried = len(counted)
    counted = counted[counted != 2]
    if not len(counted):
        return Vote(0.0, 0.0, 0, absent if tried else None)
    return Vote(float((counted < 0).mean()), float((counted > 0).mean()), len(counted))


def of_ways(votes: Iterable[Vote]) -> str:
    """Sign against one thing: that of all ways to have the method, or that it depends."""
    signs = {one.sign for one in votes} - {None}
    if len(signs) == 1:
        return str(signs.pop())
    return DEPENDS if signs else BLANK


def of_pairs(signs: Iterable[str]) -> str:
    """Sign of a cell: what the pairs in which something changes say, or that it depends."""
    said = {sign for sign in signs if sign != BLANK}
    if len(said) == 1:
        return said.pop()
    return DEPENDS if said else BLANK
