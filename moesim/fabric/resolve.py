"""From specs to a fabric: the parts that a node, its NICs and the network bring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from moesim.base.numeric import Numeric
from moesim.fabric.builders import builders
from moesim.fabric.congestion import static_hash_efficiency
from moesim.fabric.graph import Topology
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.layout import Pattern
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import Reduced, Tier, group_bandwidth
from moesim.spec import library
from moesim.spec.fabric import FabricSpec
from moesim.spec.fabric_names import oversubscribed, split_name
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.protocol import ProtocolSpec

INSIDE = ("nvlink", "pcie-switch", "host")
"""Tiers that a message reaches without a NIC."""


@dataclass(frozen=True)
class Parts:
    """What a fabric is built of."""

    fabric: FabricSpec
    node: NodeSpec
    nic: NicSpec
    gpu: GpuSpec
    protocol: ProtocolSpec


@dataclass(frozen=True)
class Network:
    """A kind of topology, its shape, and how its protocol spreads messages over parallel links.

    ``path_efficiency``: share of parallel links between switches that is used; ``incast_efficiency``: of a NIC that
    receives from many; ``end_latency``: of both ends of a message [s]; ``congestion``: what keeps queues short.
    """

    kind: str
    shape: Shape
    path_efficiency: float
    incast_efficiency: float
    end_latency: float
    congestion: str

    @property
    def reduced(self) -> Reduced:
        """The fabric as tiers, at its full bandwidths."""
        return _reduced(self.kind, self.shape)

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
        whole = size >= 1 and stride >= 1 and size % 1 == 0 and stride % 1 == 0
        if not whole or self.shape.num_gpus % (size * stride):
            return 1.0
        return group_bandwidth(self.reduced, int(size), int(stride), pattern).share

    def carrying(self, all_to_all: bool) -> Reduced:
        """The tiers with what paths and receivers lose of them."""
        fabric = self.reduced
        if not isinstance(fabric, Hierarchy):
            return fabric
        levels = []
        for place, level in enumerate(fabric.levels):
            share = self.path_efficiency if level.links > 1 else 1.0
            share *= self.incast_efficiency if all_to_all and place == 0 else 1.0
            levels.append(replace(level, capacity=level.capacity * share))
        return replace(fabric, levels=tuple(levels))


@lru_cache(maxsize=256)
def _reduced(kind: str, shape: Shape) -> Reduced:
    """Tiers by what they are made of: the same parts give the same fabric."""
    return builders.get(kind).reduced(shape)


def fabric_named(name: str) -> FabricSpec:
    """Return a fabric by name; ``NAME:O`` is the same with oversubscription O at the leaf.

    Examples
    --------
    >>> fabric_named("fat-tree:2").oversubscription.value
    2.0
    """
    plain, ratio = split_name(name)
    return oversubscribed(library.get("fabrics", plain), ratio)


def parts_of(fabric: FabricSpec, node: NodeSpec) -> Parts:
    """Return what a fabric between nodes of one kind is built of."""
    nic = library.get("nics", node.nic)
    return Parts(fabric, node, nic, library.get("gpus", node.gpu), library.get("protocols", nic.protocol))


def network(parts: Parts, num_gpus: int) -> Network:
    """Return the fabric that joins so many GPUs; a `SpecError` where its kind is unknown."""
    fabric, node, nic, protocol = parts.fabric, parts.node, parts.nic, parts.protocol
    wired = fabric.topology
    kind = fabric.kind
    if kind not in builders:
        builders.get(kind, fabric.name, "kind")
    per_node = min(node.gpus_per_node, num_gpus)
    upper = tuple(ratio.value for ratio in wired.upper_oversubscription)
    shape = Shape(
        num_gpus,
        per_node,
        1 if kind == "pcie-node" else min(node.nvlink_domain, num_gpus),
        node.links.nvlink_usable_bandwidth.value,
        nic.bandwidth.value * nic.usable_share.value * node.nics_per_node / node.gpus_per_node,
        parts.gpu.pcie_bandwidth.value,
        node.links.nvlink_latency.value,
        protocol.hop_latency.value,
        int(wired.radix.value) if wired.radix else Shape.radix,
        wired.levels,
        (fabric.oversubscription.value, *upper),
        wired.dimensions or Shape.dimensions,
        wired.sides,
        Shape.wrap if wired.wrap is None else wired.wrap,
        wired.arity or Shape.arity,
        Shape.rails_forward if wired.rails_forward is None else wired.rails_forward,
        wired.sites or Shape.sites,
        wired.wan_bandwidth.value if wired.wan_bandwidth else Shape.wan_bandwidth,
        wired.wan_latency.value if wired.wan_latency else Shape.wan_latency,
    )
    return Network(
        kind,
        shape,
        path_efficiency(protocol, shape.radix),
        protocol.incast_efficiency.value,
        protocol.end_latency.value,
        protocol.congestion,
    )


def path_efficiency(protocol: ProtocolSpec, radix: int) -> float:
    """Share of the parallel links between switches that a protocol uses; half of the ports lead up. [-]"""
    if protocol.paths == "static":
        each = int(protocol.flows_per_link.value) if protocol.flows_per_link else 1
        return static_hash_efficiency(max(1, radix // 2), each)
    return protocol.path_efficiency.value if protocol.path_efficiency else 1.0
