"""Communicators and who sends to whom in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import SpecError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Pattern = Literal["ring", "tree", "all-to-all"]
PATTERNS: tuple[Pattern, ...] = ("ring", "tree", "all-to-all")

MOST_FLOWS = 20_000_000
"""Messages that are listed one by one; more are counted by symmetry or not at all. [-]"""


@dataclass(frozen=True)
class Layout:
    """Groups of ``size`` ranks, ``stride`` apart, that together cover ``world`` ranks and run at the same time."""

    world: int
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("stride", self.stride)):
            if value < 1:
                raise SpecError.single("group", name, f"{value} is not a count", "write 1 or more")
        if self.world % (self.size * self.stride):
            what = f"{self.size} ranks, {self.stride} apart, do not divide {self.world} ranks"
            raise SpecError.single("group", "size", what, f"size times stride divides {self.world}")

    def members(self) -> Ints:
        """Ranks by group and place in it. [-]"""
        blocks = np.arange(self.world, dtype=np.int64).reshape(-1, self.size, self.stride)
        return blocks.transpose(0, 2, 1).reshape(-1, self.size)


@dataclass(frozen=True)
class Flows:
    """Messages between ranks; ``weight`` is in bytes for each byte that a rank has to send."""

    source: Ints
    target: Ints
    weight: Floats


def flows(pattern: Pattern, members: Ints, domain: int) -> Flows:
    """Messages of a pattern in every group, each rank having one byte to send.

    Parameters
    ----------
    pattern
        ``ring``: to the next rank. Where each NVLink domain holds as many members, one ring starts at every member of
        a domain and carries its share, so that all of them use their NICs. ``tree``: to the parent in a binary tree
        and back. ``all-to-all``: the same to every other rank.
    members
        Ranks by group and place, as of :meth:`Layout.members`.
    domain
        Ranks in an NVLink domain. [-]
    """
    size = members.shape[1]
    if size == 1:
        none = np.zeros(0, dtype=np.int64)
        return Flows(none, none, np.zeros(0))
    if pattern == "ring":
        return _rings(members, domain)
    if pattern == "tree":
        child = np.arange(1, size)
        up, down = members[:, child].ravel(), members[:, (child - 1) // 2].ravel()
        return Flows(np.concatenate([up, down]), np.concatenate([down, up]), np.ones(2 * len(up)))
    source, target = (index.ravel() for index in np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))
    source, target = source[source != target], target[source != target]
    senders, receivers = members[:, source].ravel(), members[:, target].ravel()
    return Flows(senders, receivers, np.full(len(senders), 1.0 / (size - 1)))


def _rings(members: Ints, domain: int) -> Flows:
    """One ring from every member of a domain where a group has as many in each of its domains, else one ring."""
    homes = members // domain
    inside = (homes == homes[:, :1]).sum(axis=1)
    parts = []
    for count in np.unique(inside):
        chosen = inside == count
        even = np.zeros(len(members), dtype=bool)
        if 1 < count < members.shape[1] and members.shape[1] % count == 0:
            grid = homes[chosen].reshape(int(chosen.sum()), -1, count)
            apart = (grid[:, 1:, 0] != grid[:, :-1, 0]).all(axis=1)
            even[chosen] = (grid == grid[:, :, :1]).all(axis=(1, 2)) & apart
        if even.any():
            parts.append(_rotated(members[even], int(count)))
        plain = members[chosen & ~even]
        parts.append(Flows(plain.ravel(), np.roll(plain, -1, axis=1).ravel(), np.ones(plain.size)))
    return Flows(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.target for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def _rotated(members: Ints, inside: int) -> Flows:
    grid = members.reshape(len(members), members.shape[1] // inside, inside)
    near = np.roll(grid, -1, axis=2)  # within the domain, left out once in each rotation
    far = np.roll(np.roll(grid, -1, axis=1), -1, axis=2)  # the exit goes to the member after it, one domain on
    source = np.concatenate([grid.ravel(), grid.ravel()])
    target = np.concatenate([near.ravel(), far.ravel()])
    return Flows(source, target, np.repeat([1 - 1 / inside, 1 / inside], members.size))
