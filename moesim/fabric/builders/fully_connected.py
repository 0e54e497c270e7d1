"""A link between every two nodes."""

from __future__ import annotations

from itertools import combinations

from moesim.fabric.builder import Builder
from moesim.fabric.builders import builders
from moesim.fabric.builders.torus import node_routers
from moesim.fabric.graph import GraphBuilder, Topology
from moesim.fabric.mesh import FullMesh
from moesim.fabric.shape import Shape, refuse


class FullyConnected(Builder):
    """The NICs of a node share its links evenly, one for each other node."""

    def reduced(self, shape: Shape) -> FullMesh:
        """Return the mesh; a node has no more links than a switch has ports."""
        if shape.num_nodes - 1 > shape.radix:
            what = f"{shape.num_nodes} nodes need {shape.num_nodes - 1} links each, and a node has {shape.radix} ports"
            raise refuse("radix", what, "fewer nodes, or a larger radix")
        whole = shape.nic_bandwidth * shape.gpus_per_node
        return FullMesh(
            shape.num_gpus,
            shape.gpus_per_node,
            min(shape.nvlink_domain, shape.gpus_per_node),
            shape.nvlink_bandwidth,
            shape.nvlink_latency,
            shape.nic_bandwidth,
            whole / max(1, shape.num_nodes - 1),
            shape.hop_latency,
        )

    def graph(self, shape: Shape) -> Topology:
        """Return the mesh with every link."""
        fabric = self.reduced(shape)
        builder = GraphBuilder(fabric)
        builder.domains(fabric.domain, fabric.nvlink_bandwidth, fabric.nvlink_latency)
        for pair in combinations(node_routers(builder, shape), 2):
            builder.link(pair, "mesh-link", fabric.link_bandwidth, fabric.latency)
        return builder.finish()


builders.add(
    "fully-connected",
    FullyConnected(),
    summary="a link between every two nodes",
    source="dally-towles-2004",
)
