"""Dragonflies: groups of routers that look like one router of many ports."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from moesim.fabric.builder import Builder
from moesim.fabric.builders import builders
from moesim.fabric.clos import one_domain
from moesim.fabric.graph import GraphBuilder, Topology, hierarchy_graph
from moesim.fabric.hierarchy import Hierarchy, Level
from moesim.fabric.shape import Shape, refuse


@dataclass(frozen=True)
class Dragonfly(Hierarchy):
    """Levels of a dragonfly; its groups are joined pairwise, so a cut is not that of a tree.

    ``per_router`` endpoints p, ``routers`` a of a group, ``global_links`` h of a router, all of ``link_bandwidth``.
    """

    per_router: int = 1
    routers: int = 1
    global_links: int = 1
    link_bandwidth: float = 1.0

    @property
    def groups(self) -> int:
        """Groups in use. [-]"""
        return -(-self.world // (self.per_router * self.routers))

    @property
    def between_groups(self) -> float:
        """Capacity between two groups, per direction: the global links are shared out evenly. [B/s]"""
        return self.routers * self.global_links * self.link_bandwidth / max(1, self.groups - 1)

    @property
    def bisection(self) -> float:
        """Capacity between two halves of the groups; of the routers, or the GPUs of one, where there is one. [B/s]"""
        if not self.levels:
            return self.world // 2 * self.nvlink_bandwidth
        if self.groups > 1:
            half = self.groups // 2
            return half * (self.groups - half) * self.between_groups
        used = -(-self.world // self.per_router)
        if used > 1:
            return (used // 2) * (used - used // 2) * self.link_bandwidth
        return self.world // 2 * self.link_bandwidth

    def halves(self) -> list[frozenset[int]]:
        """Half of the groups, or of the routers, or of the GPUs."""
        unit = self.per_router * (self.routers if self.groups > 1 else 1)
        if not self.levels or self.world <= unit:
            unit = 1
        return [frozenset(range(-(-self.world // unit) // 2 * unit))]

    @property
    def diameter(self) -> int:
        """Links on the longest of the shortest paths: two on either end, and local, global, local between routers."""
        if not self.levels:
            return super().diameter
        used = -(-self.world // self.per_router)
        return 4 + (3 if self.groups > 1 and self.routers > 1 else 1 if used > 1 else 0)


class DragonflyBuilder(Builder):
    """The balanced dragonfly of a radix: a = 2 p = 2 h, with p + (a - 1) + h ports a router.

    Global traffic is spread over all global links of a group, which takes adaptive routing.
    """

    def reduced(self, shape: Shape) -> Dragonfly:
        """Return the levels; a group reaches a h others."""
        per_router = (shape.radix + 1) // 4
        routers, links = 2 * per_router, per_router
        most = per_router * routers * (routers * links + 1)
        if per_router < 1 or shape.num_gpus > most:
            what = f"routers of {shape.radix} ports join {most} GPUs, not {shape.num_gpus}"
            raise refuse("radix", what, "a larger radix, or fewer nodes")
        domain, band, hop = shape.nvlink_domain, shape.nic_bandwidth, shape.hop_latency
        if shape.num_gpus <= domain:
            plain = one_domain(shape)
            return Dragonfly(plain.world, plain.domain, plain.nvlink_bandwidth, plain.nvlink_latency)
        levels = [Level("nic", "router", domain, domain, band, 1, hop)]
        local = (routers - 1 + links) * band
        if shape.num_gpus > per_router:
            levels.append(Level("router", "group", per_router, 1, local, 1, hop))
        if shape.num_gpus > per_router * routers:
            levels.append(Level("group", "global", per_router * routers, 1, routers * links * band, 1, hop))
        return Dragonfly(
            shape.num_gpus,
            domain,
            shape.nvlink_bandwidth,
            shape.nvlink_latency,
            tuple(levels),
            per_router=per_router,
            routers=routers,
            global_links=links,
            link_bandwidth=band,
        )

    def graph(self, shape: Shape) -> Topology:
        """Return routers, the mesh of each group, and the links between groups, spread over its routers."""
        fabric = self.reduced(shape)
        if not fabric.levels:
            return hierarchy_graph(fabric)
        builder = GraphBuilder(fabric)
        builder.domains(fabric.domain, fabric.nvlink_bandwidth, fabric.nvlink_latency)
        band, hop = fabric.link_bandwidth, shape.hop_latency
        used = -(-fabric.world // fabric.per_router)
        for router in range(used):
            builder.vertex(("router", router), 2)
        for rank, nic in enumerate(builder.nics(band, 0.0)):
            builder.link((nic, ("router", rank // fabric.per_router)), "nic", band, hop)
        for one, other in combinations(range(used), 2):
            if one // fabric.routers == other // fabric.routers:
                builder.link((("router", one), ("router", other)), "router", band, hop)
        pairs = list(combinations(range(fabric.groups), 2))
        each = max(1, fabric.routers * fabric.global_links // max(1, fabric.groups - 1))
        for one, other in pairs:
            for link in range(each):
                ends = tuple(
                    _port(fabric, here, there, link, each, used) for here, there in ((one, other), (other, one))
                )
                builder.link((ends[0], ends[1]), "group", fabric.between_groups / each, hop)
        return builder.finish()


def _port(fabric: Dragonfly, here: int, there: int, link: int, each: int, used: int) -> tuple[str | int, ...]:
    """Router of a group that holds one of its links to another group."""
    offset = (there - here) % fabric.groups - 1
    place = (offset * each + link) * fabric.routers // ((fabric.groups - 1) * each)
    own = min(fabric.routers, used - here * fabric.routers)
    return ("router", here * fabric.routers + place % own)


builders.add(
    "dragonfly",
    DragonflyBuilder(),
    summary="groups of fully connected routers, groups joined pairwise; adaptive routing",
    source="kim2008-dragonfly",
)
