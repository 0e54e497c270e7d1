"""A ring of nodes: a torus of one dimension."""

from __future__ import annotations

from dataclasses import replace

from moesim.fabric.builders import builders
from moesim.fabric.builders.torus import TorusBuilder
from moesim.fabric.graph import Topology
from moesim.fabric.shape import Shape
from moesim.fabric.torus import Torus


class Ring(TorusBuilder):
    """Each node joined with the next, the last with the first."""

    def reduced(self, shape: Shape) -> Torus:
        """Return the torus of one side."""
        return super().reduced(replace(shape, sides=(shape.num_nodes,), wrap=True))

    def graph(self, shape: Shape) -> Topology:
        """Return the ring with every link."""
        return super().graph(replace(shape, sides=(shape.num_nodes,), wrap=True))


builders.add("ring", Ring(), summary="each node joined with the next", source="dally-towles-2004")
