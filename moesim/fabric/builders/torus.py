"""Tori and meshes of one to three dimensions."""

from __future__ import annotations

import math

from moesim.fabric.builder import Builder
from moesim.fabric.builders import builders
from moesim.fabric.graph import GraphBuilder, Topology
from moesim.fabric.shape import Shape, refuse
from moesim.fabric.torus import Torus


class TorusBuilder(Builder):
    """Nodes on a grid, neighbours joined; the NICs of a node share its links evenly, two for each dimension."""

    def reduced(self, shape: Shape) -> Torus:
        """Return the grid; sides that do not multiply to the nodes are refused."""
        nodes = shape.num_nodes
        if nodes * shape.gpus_per_node != shape.num_gpus:
            raise refuse("num_gpus", f"{shape.num_gpus} GPUs do not fill {nodes} nodes", "whole nodes")
        sides = shape.sides or even_sides(nodes, shape.dimensions)
        if math.prod(sides) != nodes:
            product = " x ".join(map(str, sides))
            raise refuse(
                "sides", f"{product} is {math.prod(sides)}, not {nodes} nodes", "sides whose product is the nodes"
            )
        if shape.nvlink_domain not in (1, shape.gpus_per_node):
            what = f"an NVLink domain of {shape.nvlink_domain} is no node of {shape.gpus_per_node} GPUs"
            raise refuse("kind", what, "a rail or fat-tree network between domains")
        used = sum(side > 1 for side in sides)
        whole = shape.nic_bandwidth * shape.gpus_per_node
        return Torus(
            shape.num_gpus,
            shape.gpus_per_node,
            shape.nvlink_domain,
            sides,
            shape.wrap,
            shape.nvlink_bandwidth,
            shape.nvlink_latency,
            shape.nic_bandwidth,
            whole / (2 * max(1, used)),
            shape.hop_latency,
        )

    def graph(self, shape: Shape) -> Topology:
        """Return the grid with every link."""
        fabric = self.reduced(shape)
        builder = GraphBuilder(fabric)
        builder.domains(fabric.domain, fabric.nvlink_bandwidth, fabric.nvlink_latency)
        routers = node_routers(builder, shape)
        for index, router in enumerate(routers):
            step = 1
            for name, side in zip("xyzw", fabric.sides, strict=False):
                place = index // step % side
                joined = place + 1 < side or (fabric.wrap and side > 2)
                if side > 1 and joined:
                    following = routers[index + step * ((place + 1) % side - place)]
                    builder.link((router, following), f"{name}-link", fabric.link_bandwidth, fabric.latency)
                step *= side
        return builder.finish()


def node_routers(builder: GraphBuilder, shape: Shape) -> list[tuple[str | int, ...]]:
    """Give each node a router behind its NICs; return the routers in order."""
    nics = builder.nics(shape.nic_bandwidth, 0.0)
    routers = [builder.vertex(("node", node), 2) for node in range(shape.num_nodes)]
    for rank, nic in enumerate(nics):
        builder.link((nic, routers[rank // shape.gpus_per_node]), "nic", shape.nic_bandwidth, shape.hop_latency)
    return routers


def even_sides(nodes: int, dimensions: int) -> tuple[int, ...]:
    """Sides of a box of `nodes` points that is as even as whole numbers allow, the shortest first.

    Examples
    --------
    >>> even_sides(64, 3), even_sides(48, 2), even_sides(7, 2)
    ((4, 4, 4), (6, 8), (1, 7))
    """
    if dimensions == 1:
        return (nodes,)
    root = round(nodes ** (1 / dimensions)) + 1
    side = max(d for d in range(1, root + 1) if nodes % d == 0 and d**dimensions <= nodes)
    return (side, *even_sides(nodes // side, dimensions - 1))


builders.add(
    "torus",
    TorusBuilder(),
    summary="nodes on a grid of up to three dimensions, with or without links around its ends",
    source="dally-towles-2004",
)
