"""Graphs of fabrics: vertices with a level, links with capacity per direction and latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.tiers import Reduced

if TYPE_CHECKING:
    import networkx as nx

Vertex = tuple[str | int, ...]
"""Kind of vertex and its numbers: ``("gpu", 5)``, ``("leaf", 2, 0)`` for switch 0 of unit 2."""

MOST_GPUS = 4096
"""GPUs beyond which a fabric is not drawn or routed link by link. [-]"""


@dataclass(frozen=True)
class Topology:
    """The graph of a fabric, and the fabric it stands for.

    Vertices carry ``level`` (0: GPU); links carry ``capacity`` [B/s per direction], ``latency`` [s] and ``kind``, the
    name that the loads of the reduced fabric use.
    """

    graph: nx.Graph[Vertex]
    fabric: Reduced

    @property
    def gpus(self) -> list[Vertex]:
        """GPUs in the order of their ranks."""
        return [("gpu", rank) for rank in range(self.fabric.world)]


class GraphBuilder:
    """A graph that grows by links; refuses fabrics that are too large to walk through."""

    def __init__(self, fabric: Reduced) -> None:
        import networkx as nx

        if fabric.world > MOST_GPUS:
            from moesim.fabric.shape import refuse

            what = f"{fabric.world} GPUs are too many for a graph of every link"
            raise refuse("num_gpus", what, f"{MOST_GPUS} or fewer; tiers need no graph")
        self.graph: nx.Graph[Vertex] = nx.Graph()
        self.fabric = fabric
        for rank in range(fabric.world):
            self.graph.add_node(("gpu", rank), level=0)

    def vertex(self, vertex: Vertex, level: int) -> Vertex:
        """Add a vertex."""
        self.graph.add_node(vertex, level=level)
        return vertex

    def link(self, ends: tuple[Vertex, Vertex], kind: str, capacity: float, latency: float) -> None:
        """Add a link; parallel links become one of their joint capacity."""
        if self.graph.has_edge(*ends):
            self.graph.edges[ends]["capacity"] += capacity
            return
        self.graph.add_edge(*ends, kind=kind, capacity=capacity, latency=latency)

    def domains(self, domain: int, bandwidth: float, latency: float) -> None:
        """Join the GPUs of each NVLink domain through its switches, taken as one."""
        if domain == 1:
            return
        for rank in range(self.fabric.world):
            switch = self.vertex(("nvswitch", rank // domain), 1)
            self.link((("gpu", rank), switch), "nvlink", bandwidth, latency)

    def nics(self, capacity: float, latency: float) -> list[Vertex]:
        """Give each GPU a NIC; return them by rank."""
        found = []
        for rank in range(self.fabric.world):
            nic = self.vertex(("nic", rank), 1)
            self.link((("gpu", rank), nic), "pcie", capacity, latency)
            found.append(nic)
        return found

    def finish(self) -> Topology:
        """Return the graph."""
        return Topology(self.graph, self.fabric)


def hierarchy_graph(fabric: Hierarchy) -> Topology:
    """Graph of a folded Clos network: each switch of a unit has its own switches above, shared by its sister units."""
    builder = GraphBuilder(fabric)
    builder.domains(fabric.domain, fabric.nvlink_bandwidth, fabric.nvlink_latency)
    if not fabric.levels:
        return builder.finish()
    ports = builder.nics(fabric.levels[0].capacity, 0.0)
    ranks = np.arange(fabric.world, dtype=np.int64)
    width = 1
    below: dict[int, list[Vertex]] = {rank: [port] for rank, port in enumerate(ports)}
    for height, level in enumerate(fabric.levels):
        units = level.unit(ranks)
        above = fabric.levels[height + 1].unit(ranks) if height + 1 < len(fabric.levels) else ranks % fabric.top_lanes
        pairs = dict(zip(units.tolist(), above.tolist(), strict=True))
        switches: dict[int, list[Vertex]] = {}
        for unit, parent in pairs.items():
            if parent not in switches:
                count = width * level.links
                switches[parent] = [builder.vertex((level.into, parent, at), height + 2) for at in range(count)]
            for at, switch in enumerate(below[unit]):
                for up in range(level.links):
                    ends = (switch, switches[parent][at * level.links + up])
                    builder.link(ends, level.name, level.capacity / (width * level.links), level.latency)
        below, width = switches, width * level.links
    return builder.finish()
