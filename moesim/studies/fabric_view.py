"""A fabric at a glance: tiers, bisection, diameter, and what a fault leaves of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.fabric.faults import group_rates, with_degraded, with_fault
from moesim.fabric.layout import Layout, Pattern
from moesim.fabric.network import INSIDE, Network
from moesim.fabric.resolve import fabric_named, network, parts_of
from moesim.fabric.tiers import Tier, group_bandwidth
from moesim.spec import library
from moesim.spec.fabric import FabricSpec
from moesim.spec.hardware import NodeSpec


@dataclass(frozen=True)
class FaultRow:
    """What groups of a layout get before and after a fault: the slowest one. [B/s for each rank]

    ``suffering``: groups that get less than before, of ``groups``.
    """

    layout: str
    pattern: Pattern
    before: float
    after: float
    suffering: int
    groups: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "groups_of": self.layout,
            "pattern": self.pattern,
            "before_bytes_per_s": self.before,
            "after_bytes_per_s": self.after,
            "groups_suffering": self.suffering,
            "groups": self.groups,
        }


@dataclass(frozen=True)
class FabricView(Shown):
    """A fabric between nodes of one kind.

    ``bisection``: between two halves, each way [B/s]; ``full_bisection_share``: of what the NICs of a half could send.
    """

    name: str
    node: str
    network: Network
    fault: str | None
    fault_rows: tuple[FaultRow, ...]

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Tiers from the GPU outwards, without the fault."""
        return self.network.reduced.tiers

    @property
    def bisection(self) -> float:
        """Capacity between two halves of the fabric, each way. [B/s]"""
        return self.network.reduced.bisection

    @property
    def full_bisection_share(self) -> float:
        """Bisection over what one half could send: its NICs, or its links inside a single domain. [-]"""
        shape = self.network.shape
        each = shape.nic_bandwidth if self.network.reduced.tiers[-1].name not in INSIDE else self.tiers[0].bandwidth
        return self.bisection / (shape.num_gpus // 2 * each)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        shape = self.network.shape
        return {
            "name": self.name,
            "kind": self.network.kind,
            "node": self.node,
            "num_nodes": shape.num_nodes,
            "num_gpus": shape.num_gpus,
            "tiers": [
                {
                    "name": tier.name,
                    "size": tier.size,
                    "bandwidth_bytes_per_s": tier.bandwidth,
                    "oversubscription": tier.oversubscription,
                    "latency_s": self.network.message_latency(tier),
                }
                for tier in self.tiers
            ],
            "bisection_bytes_per_s": self.bisection,
            "full_bisection_share": self.full_bisection_share,
            "diameter_links": self.network.reduced.diameter,
            "path_efficiency": self.network.path_efficiency,
            "incast_efficiency": self.network.incast_efficiency,
            "congestion": self.network.congestion,
            "fault": self.fault,
            "fault_effects": [row.to_dict() for row in self.fault_rows],
        }


def fabric_view(name: str, num_nodes: int, node: str | None = None, fault: str | None = None) -> FabricView:
    """Look at a fabric by name, between so many nodes.

    Parameters
    ----------
    name
        A fabric, or ``NAME:O`` for another oversubscription at the leaf.
    num_nodes
        Nodes. [-]
    node
        Kind of node; left out, one whose usual fabric this is.
    fault
        As in :mod:`moesim.fabric.faults`.
    """
    if num_nodes < 1:
        raise SpecError.single("--nodes", "", f"{num_nodes} is not a number of nodes", "1 or more")
    spec = fabric_named(name)
    chosen = library.get("nodes", node) if node else usual_node(spec)
    joined = network(parts_of(spec, chosen), chosen.gpus_per_node * num_nodes)
    if len(joined.reduced.tiers) == 0:
        raise SpecError.single("--nodes", "", "a single GPU has no fabric", "more nodes, or another kind of node")
    rows = _fault_rows(joined, fault) if fault else ()
    return FabricView(spec.name, chosen.name, joined, fault, rows)


def usual_node(fabric: FabricSpec) -> NodeSpec:
    """Return a node whose usual fabric this is, preferred ones first; an HGX H100 where there is none."""
    nodes = [library.get("nodes", name) for name in library.names("nodes")]
    usual = [node for node in nodes if library.find("fabrics", node.default_fabric) == fabric.name.partition(":")[0]]
    return min(
        usual, key=lambda node: (not node.preferred, node.name != "hgx-h100"), default=library.get("nodes", "hgx-h100")
    )


def _fault_rows(joined: Network, fault: str) -> tuple[FaultRow, ...]:
    shape = joined.shape
    world, per_node = shape.num_gpus, shape.gpus_per_node
    layouts = {"all GPUs": (world, 1)}
    if 1 < per_node < world:
        layouts = {"the GPUs of a node": (per_node, 1), "one GPU of each node": (world // per_node, per_node)} | layouts
    patterns: tuple[Pattern, ...] = ("ring", "all-to-all")
    rows = []
    if fault.startswith("degrade:"):
        slower = with_degraded(joined.reduced, fault)
        for words, (size, stride) in layouts.items():
            for pattern in patterns:
                before, after = (
                    group_bandwidth(one, size, stride, pattern).bandwidth for one in (joined.reduced, slower)
                )
                groups = world // size
                rows.append(FaultRow(words, pattern, before, after, groups if after < before else 0, groups))
        return tuple(rows)
    broken = with_fault(joined.topology, fault, per_node)
    for words, (size, stride) in layouts.items():
        for pattern in patterns:
            before = group_bandwidth(joined.reduced, size, stride, pattern).bandwidth
            rates = group_rates(broken, Layout(world, size, stride), pattern).rates
            suffering = sum(rate < before * (1 - 1e-9) for rate in rates)
            rows.append(FaultRow(words, pattern, before, min(rates), suffering, len(rates)))
    return tuple(rows)
