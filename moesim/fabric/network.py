"""A fabric as prices and studies ask it: its tiers, and what protocol and faults leave of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from moesim.base.numeric import Numeric
from moesim.fabric.builders import builders
from moesim.fabric.faults import on_graph, rates_of, with_degraded, with_fault
from moesim.fabric.graph import Topology
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.layout import Ints, Layout, Pattern
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import GroupBandwidth, Reduced, Tier, ends_bandwidth, members_bandwidth
from moesim.fabric.torus import Torus
from moesim.fabric.torus_rings import grid_rings

INSIDE = ("nvlink", "pcie-switch", "host")
"""Tiers that a message reaches without a NIC."""
ADAPTIVE = 0.95
"""Share of parallel links that adaptive routing uses; it is part of what was measured on such networks. [-]"""
MEASURED_LINKS = 6
"""Links of a message over three levels of switches: what the measured latency of a hop contains. [-]"""


@dataclass(frozen=True)
class Network:
    """A kind of topology, its shape, and how its protocol spreads messages over parallel links.

    ``path_efficiency``: share of parallel links between switches that is used; ``incast_efficiency``: of a NIC that
    receives from many; ``end_latency``: of both ends of a message [s]; ``congestion``: what keeps queues short;
    ``hashed``: a flow stays on one path; ``fault``: what is broken, as in :mod:`moesim.fabric.faults`.
    """

    kind: str
    shape: Shape
    path_efficiency: float
    incast_efficiency: float
    end_latency: float
    congestion: str
    hashed: bool = False
    fault: str = ""

    @property
    def reduced(self) -> Reduced:
        """The fabric as tiers, at its full bandwidths."""
        return _reduced(self.kind, self.shape)

    @cached_property
    def priced(self) -> Reduced:
        """The tiers as prices take them: with slow links, and with what hashing loses against adaptive routing.

        Prices were measured on networks with adaptive routing, so what that loses is in them already.
        """
        fabric = self.worn
        return _narrowed(fabric, min(1.0, self.path_efficiency / ADAPTIVE)) if self.hashed else fabric

    @property
    def worn(self) -> Reduced:
        """The tiers with slow links, where the fault is that."""
        slow = self.fault and not on_graph(self.fault)
        return with_degraded(self.reduced, self.fault) if slow else self.reduced

    @property
    def broken(self) -> Topology:
        """The graph without what the fault takes away."""
        return _broken(self)

    @cached_property
    def free(self) -> bool:
        """No layout of groups is slower than its NICs, and no message passes more links than were measured.

        What leaves a unit of a tree comes from the NICs below it, so links that carry all of these never limit.
        """
        fabric = self.priced
        if self.fault or not isinstance(fabric, Hierarchy) or 2 * len(fabric.levels) > MEASURED_LINKS:
            return False
        below = [level.capacity / min(level.gpus, fabric.world) for level in fabric.levels]
        far = fabric.tiers[-1].latency if fabric.levels else 0.0
        return all(each >= below[0] * (1 - 1e-9) for each in below) and far <= self._measured_latency * (1 + 1e-9)

    def message_latency(self, tier: Tier) -> float:
        """One way of a small message whose lowest common tier this is, without software. [s]"""
        return tier.latency + (0.0 if tier.name in INSIDE else self.end_latency)

    @property
    def has_parallel_links(self) -> bool:
        """Switches have several links of equal cost to choose from."""
        fabric = self.reduced
        return isinstance(fabric, Hierarchy) and any(level.links > 1 for level in fabric.levels)

    @property
    def topology(self) -> Topology:
        """The fabric as a graph."""
        return builders.get(self.kind).graph(self.shape)

    def shares(self, size: Numeric, stride: Numeric, pattern: Pattern) -> Numeric:
        """Share of its NIC that each rank keeps in groups of `size` ranks `stride` apart, siblings running too. [-]

        Degrees may be arrays, as in a batch of strategies; each distinct pair is worked out once. Degrees that do not
        divide the GPUs, which no legal strategy has, keep all.
        """
        sizes, strides = np.broadcast_arrays(np.asarray(size, dtype=float), np.asarray(stride, dtype=float))
        pairs, inverse = np.unique(np.stack([sizes.ravel(), strides.ravel()]), axis=1, return_inverse=True)
        found = np.array([self._share(ranks, apart, pattern) for ranks, apart in pairs.T.tolist()])
        shares = found[inverse].reshape(sizes.shape)
        return shares if shares.ndim else float(shares)

    def _share(self, size: float, stride: float, pattern: Pattern) -> float:
        if not self.divides(size, stride):
            return 1.0
        return self.share(Layout(self.shape.num_gpus, int(size), int(stride)).members(), pattern)

    def divides(self, size: float, stride: float) -> bool:
        """Whether groups of that size and stride cover the GPUs."""
        whole = size >= 1 and stride >= 1 and size % 1 == 0 and stride % 1 == 0
        return whole and self.shape.num_gpus % (size * stride) == 0

    def share(self, members: Ints, pattern: Pattern) -> float:
        """Share of its NIC that a rank of the slowest of these groups keeps, all of them running. [-]

        NVLink and NICs that a fault takes away count as if they were there: what is left of the whole is the share.
        """
        found = members_bandwidth(self.priced, members, pattern)
        if not self.fault or not found.binding:
            return found.share
        whole = ends_bandwidth(members_bandwidth(self.reduced, members, pattern).loads)
        rates = rates_of(self.broken, members, pattern).rates if on_graph(self.fault) else ()
        return min([found.bandwidth, *rates]) / whole if whole != float("inf") else 1.0

    def extra_latency(self, members: Ints, pattern: Pattern) -> tuple[float, float]:
        """Latency of a message between NVLink domains beyond what was measured: the mean, and the farthest. [s]"""
        found = members_bandwidth(self.priced, members, pattern)
        mean, far = mean_latency(self.priced, found), far_latency(self.priced, found)
        return max(0.0, mean - self._measured_latency), max(0.0, far - self._measured_latency)

    @property
    def _measured_latency(self) -> float:
        return MEASURED_LINKS * self.shape.hop_latency

    def grid(self, members: Ints) -> tuple[float, float]:
        """Rings dimension by dimension on a torus: share of the NICs that they carry, and steps; 0 without one. [-]"""
        fabric = self.priced
        if not isinstance(fabric, Torus) or on_graph(self.fault):
            return 0.0, 0.0
        return grid_rings(fabric, members)

    def carrying(self, all_to_all: bool) -> Reduced:
        """The tiers with what paths and receivers lose of them."""
        fabric = _narrowed(self.reduced, self.path_efficiency)
        if not isinstance(fabric, Hierarchy) or not all_to_all or not fabric.levels:
            return fabric
        nic, *others = fabric.levels
        return replace(fabric, levels=(replace(nic, capacity=nic.capacity * self.incast_efficiency), *others))


def mean_latency(fabric: Reduced, found: GroupBandwidth) -> float:
    """One way of the messages that leave their NVLink domain, on average; 0 where none does. [s]"""
    network = {name: load for name, load in found.loads.items() if name != "nvlink" and load.total}
    if "nic" not in network:
        return 0.0
    messages = network["nic"].total / 2
    return sum(fabric.link_latencies[name] * load.total / messages for name, load in network.items())


def far_latency(fabric: Reduced, found: GroupBandwidth) -> float:
    """One way between two GPUs whose lowest common tier is the outermost that is crossed. [s]"""
    by_name = {tier.name: tier.latency for tier in fabric.tiers if tier.name not in INSIDE}
    crossed = [by_name[name] for name in found.crossed if name in by_name]
    return max(crossed, default=0.0)


def _narrowed(fabric: Reduced, share: float) -> Reduced:
    """A fabric whose parallel links between switches carry a share of what they could."""
    if not isinstance(fabric, Hierarchy):
        return fabric
    levels = (replace(one, capacity=one.capacity * share) if one.links > 1 else one for one in fabric.levels)
    return replace(fabric, levels=tuple(levels))


@lru_cache(maxsize=256)
def _reduced(kind: str, shape: Shape) -> Reduced:
    """Tiers by what they are made of: the same parts give the same fabric."""
    return builders.get(kind).reduced(shape)


@lru_cache(maxsize=4)
def _broken(network: Network) -> Topology:
    return with_fault(network.topology, network.fault, network.shape.gpus_per_node)
