"""Nodes joined pairwise: every two share a link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moesim.fabric.ends import end_load
from moesim.fabric.layout import Ints, Pattern, flows
from moesim.fabric.tiers import LinkLoad, Reduced, Tier


@dataclass(frozen=True)
class FullMesh(Reduced):
    """A link between every two nodes. Bandwidths per direction [B/s], latencies of a link [s]."""

    world: int
    gpus_per_node: int
    domain: int
    nvlink_bandwidth: float
    nvlink_latency: float
    nic_bandwidth: float
    link_bandwidth: float
    latency: float

    @property
    def num_nodes(self) -> int:
        """Nodes. [-]"""
        return -(-self.world // self.gpus_per_node)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The NVLink domain, then the links between nodes: what each GPU has of them when it talks to all."""
        found = []
        if self.domain > 1:
            found.append(Tier("nvlink", self.domain, self.nvlink_bandwidth, 1.0, 2 * self.nvlink_latency))
        if self.num_nodes > 1:
            found.append(Tier("mesh", self.world, self.nic_bandwidth, 1.0, 3 * self.latency))
        return tuple(found)

    @property
    def bisection(self) -> float:
        """Capacity between two halves of the nodes, each way. [B/s]"""
        if self.num_nodes == 1:
            return self.world // 2 * self.nvlink_bandwidth
        half = self.num_nodes // 2
        return half * (self.num_nodes - half) * self.link_bandwidth

    def halves(self) -> list[frozenset[int]]:
        """Half of the nodes, or of the GPUs of a single one."""
        if self.num_nodes == 1:
            return super().halves()
        return [frozenset(range(self.num_nodes // 2 * self.gpus_per_node))]

    @property
    def diameter(self) -> int:
        """Links on the longest of the shortest paths between two GPUs; two on either end lead to the mesh. [-]"""
        return 5 if self.num_nodes > 1 else 2

    @property
    def link_latencies(self) -> dict[str, float]:
        """Latency of each kind of link of the network. [s]"""
        return {"nic": self.latency, "mesh-link": self.latency}

    def link_loads(self, members: Ints, pattern: Pattern) -> dict[str, LinkLoad]:
        """Loads by kind of link, where the groups of `members` run a pattern at the same time."""
        found = flows(pattern, members, self.domain)
        near = found.source // self.domain == found.target // self.domain
        loads: dict[str, LinkLoad] = {}
        if self.domain > 1:
            loads["nvlink"] = end_load("nvlink", self.nvlink_bandwidth, found, near, self.world)
        loads["nic"] = end_load("nic", self.nic_bandwidth, found, ~near, self.world)
        source, target = found.source // self.gpus_per_node, found.target // self.gpus_per_node
        apart = source != target
        pairs = np.bincount((source * self.num_nodes + target)[apart], found.weight[apart], self.num_nodes**2)
        loads["mesh-link"] = LinkLoad("mesh", self.link_bandwidth, float(pairs.max()), float(pairs.sum()), 1)
        return loads
