"""What a fabric is asked to join: GPUs in nodes, and the parts at hand."""

from __future__ import annotations

from dataclasses import dataclass

from moesim.base.errors import SpecError


@dataclass(frozen=True)
class Shape:
    """GPUs to join, and the switches and links to do it with.

    Attributes
    ----------
    num_gpus, gpus_per_node, nvlink_domain
        GPUs in all, in one host, and in one NVLink domain; a domain of 1 is a node without NVLink. [-]
    nvlink_bandwidth, nic_bandwidth, pcie_bandwidth
        Per GPU and direction. The NICs of a GPU count as one. [B/s]
    nvlink_latency, hop_latency
        Of a link inside the domain, and of a link of the network with the switch behind it. [s]
    radix, levels
        Ports of a switch at the speed of a NIC; levels of switches, or as many as it takes. [-]
    oversubscription
        Down-link over up-link capacity of each level of switches, from the leaf up; 1 where left out. [-]
    dimensions, sides, wrap
        Of a torus: how many dimensions, their sides in nodes (else as even as the nodes allow), links around the ends.
    arity
        Children of a switch of a plain tree. [-]
    rails_forward
        A message to another rail first crosses NVLink to the GPU on that rail.
    sites, wan_bandwidth, wan_latency
        Data centres; what joins one with the others, in all and per direction [B/s], and its latency [s].
    """

    num_gpus: int
    gpus_per_node: int = 1
    nvlink_domain: int = 1
    nvlink_bandwidth: float = 450e9
    nic_bandwidth: float = 50e9
    pcie_bandwidth: float = 64e9
    nvlink_latency: float = 0.5e-6
    hop_latency: float = 0.5e-6
    radix: int = 64
    levels: int | None = None
    oversubscription: tuple[float, ...] = ()
    dimensions: int = 3
    sides: tuple[int, ...] = ()
    wrap: bool = True
    arity: int = 2
    rails_forward: bool = True
    sites: int = 1
    wan_bandwidth: float = 0.0
    wan_latency: float = 0.0

    @property
    def num_nodes(self) -> int:
        """Hosts; the last may be partly filled. [-]"""
        return -(-self.num_gpus // self.gpus_per_node)

    def ratio(self, level: int) -> float:
        """Oversubscription of one level of switches, the leaf being 0. [-]"""
        return self.oversubscription[level] if level < len(self.oversubscription) else 1.0


def refuse(path: str, what: str, fix: str) -> SpecError:
    """Return the error of a fabric that cannot be built."""
    return SpecError.single("fabric", path, what, fix)
