"""What a network leaves a communicator of what its NICs promise, as prices take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from moesim.base.numeric import Numeric
from moesim.fabric.layout import Ints, Layout
from moesim.fabric.network import Network

Quantity = Literal[
    "ring", "tree", "all-to-all", "rail-all-to-all", "hop-latency", "far-latency", "grid-share", "grid-steps"
]
"""What a reach tells of a communicator.

``ring``, ``tree``, ``all-to-all``
    Share of its NIC that each rank keeps while the sibling groups run too; trees join NVLink domains. [-]
``rail-all-to-all``
    The same for an all-to-all between the ranks at one place of their NVLink domains. [-]
``hop-latency``, ``far-latency``
    Of a message between neighbours of a ring, on average, and between the farthest ranks: what comes on top of three
    levels of switches. [s]
``grid-share``, ``grid-steps``
    Of rings dimension by dimension on a torus: share of the NICs that they carry, 0 without a torus, and steps to go
    around all of them. [-]
"""

UNLIMITED: dict[Quantity, float] = {"ring": 1.0, "tree": 1.0, "all-to-all": 1.0, "rail-all-to-all": 1.0}


class Reach:
    """Of a network that never limits: its NICs and the latencies that were measured are all there is."""

    def of(self, what: Quantity) -> Numeric:
        """One quantity."""
        return UNLIMITED.get(what, 0.0)


FREE = Reach()


@dataclass(frozen=True)
class LayoutReach(Reach):
    """Of groups of ``size`` ranks ``stride`` apart, ``per_node`` of them in an NVLink domain; degrees may be arrays."""

    network: Network
    size: Numeric
    stride: Numeric
    per_node: Numeric

    def of(self, what: Quantity) -> Numeric:
        """One quantity; each distinct layout is worked out once."""
        if isinstance(self.size, float | int) and isinstance(self.stride, float | int) and np.ndim(self.per_node) == 0:
            return _of_layout(self.network, float(self.size), float(self.stride), float(self.per_node), what)
        parts = np.broadcast_arrays(*(np.asarray(part, float) for part in (self.size, self.stride, self.per_node)))
        rows, inverse = np.unique(np.stack([part.ravel() for part in parts]), axis=1, return_inverse=True)
        found = np.array([_of_layout(self.network, *row, what) for row in rows.T.tolist()])
        return np.asarray(found[inverse].reshape(parts[0].shape))


@dataclass(frozen=True, eq=False)
class MembersReach(Reach):
    """Of groups that list their members, ``per_node`` neighbours of them in an NVLink domain."""

    network: Network
    members: Ints
    per_node: int
    _known: dict[Quantity, float] = field(default_factory=dict, repr=False)

    def of(self, what: Quantity) -> Numeric:
        """One quantity, worked out when it is first asked for."""
        if what not in self._known:
            self._known[what] = _of_members(self.network, self.members, self.per_node, what)
        return self._known[what]


@dataclass(frozen=True, eq=False)
class StackedReach(Reach):
    """Columns that each have a reach of their own: ``columns`` tells which."""

    parts: Sequence[Reach]
    columns: Ints

    def of(self, what: Quantity) -> Numeric:
        """One quantity, by column."""
        return np.array([float(part.of(what)) for part in self.parts])[self.columns]


@lru_cache(maxsize=16384)
def _of_layout(network: Network, size: float, stride: float, per_node: float, what: Quantity) -> float:
    """Degrees that do not divide the GPUs, which no legal strategy has, are not limited."""
    if size <= 1 or not network.divides(size, stride):
        return float(UNLIMITED.get(what, 0.0))
    return _of_members(network, Layout(network.shape.num_gpus, int(size), int(stride)).members(), int(per_node), what)


def _of_members(network: Network, members: Ints, per_node: int, what: Quantity) -> float:
    size = members.shape[1]
    if size <= 1:
        return float(UNLIMITED.get(what, 0.0))
    whole = size % per_node == 0
    incast = network.incast_efficiency if crowded(size, per_node) else 1.0
    if network.free:
        return incast if what in ("all-to-all", "rail-all-to-all") else float(UNLIMITED.get(what, 0.0))
    match what:
        case "ring":
            return network.share(members, "ring")
        case "tree":
            across = network.share(_rails(members, per_node), "tree") if whole else 1.0
            return min(across, network.share(members, "ring"))
        case "all-to-all":
            return network.share(members, "all-to-all") * incast
        case "rail-all-to-all":
            rails = _rails(members, per_node) if whole else members
            return network.share(rails, "all-to-all") * incast
        case "hop-latency":
            return network.extra_latency(members, "ring")[0]
        case "far-latency":
            return network.extra_latency(members, "ring")[1]
        case "grid-share":
            return network.grid(members)[0]
        case "grid-steps":
            return network.grid(members)[1]


def crowded(size: float, per_node: float) -> bool:
    """Whether NICs of an all-to-all receive from several senders.

    Rows for another NVLink domain leave by the NIC on the rail of the receiver (PXN of NCCL, nccl-2.30.7), so that a NIC
    has one sender in each other domain: in a group of two domains none meet.
    """
    return size > 2 * per_node


def _rails(members: Ints, per_node: int) -> Ints:
    """Groups of the ranks at one place of their NVLink domains."""
    count = members.shape[1]
    return members.reshape(-1, count // per_node, per_node).transpose(0, 2, 1).reshape(-1, count // per_node)
