"""From specs to a fabric: the parts that a node, its NICs and the network bring."""

from __future__ import annotations

from dataclasses import dataclass

from moesim.fabric.builders import builders
from moesim.fabric.congestion import static_hash_efficiency
from moesim.fabric.network import Network
from moesim.fabric.shape import Shape
from moesim.spec import library
from moesim.spec.fabric import FabricSpec
from moesim.spec.fabric_names import oversubscribed, split_name
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.protocol import ProtocolSpec


@dataclass(frozen=True)
class Parts:
    """What a fabric is built of."""

    fabric: FabricSpec
    node: NodeSpec
    nic: NicSpec
    gpu: GpuSpec
    protocol: ProtocolSpec


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
        protocol.paths == "static",
    )


def path_efficiency(protocol: ProtocolSpec, radix: int) -> float:
    """Share of the parallel links between switches that a protocol uses; half of the ports lead up. [-]"""
    if protocol.paths == "static":
        each = int(protocol.flows_per_link.value) if protocol.flows_per_link else 1
        return static_hash_efficiency(max(1, radix // 2), each)
    return protocol.path_efficiency.value if protocol.path_efficiency else 1.0
