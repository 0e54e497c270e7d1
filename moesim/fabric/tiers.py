"""What is left of a fabric once its symmetry is used: tiers, and the loads of their links."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from moesim.fabric.layout import Ints, Layout, Pattern


@dataclass(frozen=True)
class Tier:
    """A level of a fabric.

    Attributes
    ----------
    name
        What joins the GPUs there.
    size
        GPUs joined without leaving one unit of the tier. [-]
    bandwidth
        Per GPU and direction, where all GPUs cross the links into the tier at once. [B/s]
    oversubscription
        Bandwidth of the tier below over this one. [-]
    latency
        One way between two GPUs whose lowest common tier this is. [s]
    """

    name: str
    size: int
    bandwidth: float
    oversubscription: float
    latency: float


@dataclass(frozen=True)
class LinkLoad:
    """Bytes on the links of one kind for each byte that a rank has to send.

    ``most``: on the busiest link and direction; ``total``: on all links, both directions; ``capacity``: of the busiest
    link [B/s]; ``tier``: the tier that the links lead into; ``crossings``: links of the kind that a message takes, on
    the way up and down, where it does not count hops.
    """

    tier: str
    capacity: float
    most: float
    total: float
    crossings: int = 2


@dataclass(frozen=True)
class GroupBandwidth:
    """What a rank of a group gets when all groups of the layout run at the same time.

    Attributes
    ----------
    bandwidth
        Bytes a second that each rank can send; infinite where nothing is sent. [B/s]
    binding
        Kind of link that limits it; empty where nothing is sent.
    contention
        Bandwidth of one group alone over this one, >= 1. [-]
    loads
        By kind of link.
    """

    bandwidth: float
    binding: str
    contention: float
    loads: Mapping[str, LinkLoad]

    @property
    def share(self) -> float:
        """Bandwidth over what NVLink and NICs alone would give: 1 where the network between the NICs never limits. [-]"""
        ends = ends_bandwidth(self.loads)
        return self.bandwidth / ends if self.binding and ends != float("inf") else 1.0

    @property
    def crossed(self) -> tuple[str, ...]:
        """Tiers that carry something."""
        return tuple(dict.fromkeys(load.tier for load in self.loads.values() if load.most))


ENDS = ("nvlink", "nic", "pcie")
"""Links that a GPU has to itself."""


class Reduced(ABC):
    """A fabric without its vertices: arithmetic per tier."""

    world: int

    @property
    @abstractmethod
    def tiers(self) -> tuple[Tier, ...]:
        """Tiers from the GPU outwards."""

    @abstractmethod
    def link_loads(self, members: Ints, pattern: Pattern) -> dict[str, LinkLoad]:
        """Loads by kind of link, where the groups of `members` run a pattern at the same time."""

    @property
    @abstractmethod
    def link_latencies(self) -> dict[str, float]:
        """Latency of each kind of link of the network, as in the loads, with the switch behind it. [s]"""

    @property
    @abstractmethod
    def bisection(self) -> float:
        """Capacity between two halves of the GPUs, each way. [B/s]"""

    def halves(self) -> list[frozenset[int]]:
        """Ranks on one side of the cuts that the bisection is the least of; the first half here."""
        return [frozenset(range(self.world // 2))]

    @property
    @abstractmethod
    def diameter(self) -> int:
        """Links on the longest of the shortest paths between two GPUs. [-]"""


@lru_cache(maxsize=4096)
def group_bandwidth(fabric: Reduced, size: int, stride: int, pattern: Pattern) -> GroupBandwidth:
    """Bandwidth of each rank of a group of ``size`` ranks ``stride`` apart, its sibling groups running too."""
    return members_bandwidth(fabric, Layout(fabric.world, size, stride).members(), pattern)


def members_bandwidth(fabric: Reduced, members: Ints, pattern: Pattern) -> GroupBandwidth:
    """Bandwidth of each rank of groups of any ranks that run at the same time."""
    loads = fabric.link_loads(members, pattern)
    binding, bandwidth = _slowest(loads)
    _, alone = _slowest(fabric.link_loads(members[:1], pattern))
    contention = alone / bandwidth if binding else 1.0
    return GroupBandwidth(bandwidth, binding, contention, loads)


def ends_bandwidth(loads: Mapping[str, LinkLoad]) -> float:
    """What NVLink and NICs alone would give each rank. [B/s]"""
    return _slowest({name: load for name, load in loads.items() if name in ENDS})[1]


def _slowest(loads: Mapping[str, LinkLoad]) -> tuple[str, float]:
    rates = {name: load.capacity / load.most for name, load in loads.items() if load.most}
    if not rates:
        return "", float("inf")
    name = min(rates, key=rates.__getitem__)
    return name, rates[name]
