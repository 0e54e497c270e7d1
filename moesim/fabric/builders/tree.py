"""Plain trees of switches."""

from __future__ import annotations

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.clos import one_domain
from moesim.fabric.hierarchy import Hierarchy, Level
from moesim.fabric.shape import Shape, refuse


class Tree(HierarchyBuilder):
    """Switches with ``arity`` children and one link up, all links alike; the root is the bottleneck."""

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the levels, as many as the GPUs need."""
        if shape.arity < 2:
            raise refuse("arity", f"a tree of arity {shape.arity} does not branch", "2 or more")
        domain = shape.nvlink_domain
        if shape.num_gpus <= domain:
            return one_domain(shape)
        levels = [Level("nic", "switch-1", domain, domain, shape.nic_bandwidth, 1, shape.hop_latency)]
        block = shape.arity
        while block < shape.num_gpus:
            height = len(levels)
            below, above = f"switch-{height}", f"switch-{height + 1}"
            levels.append(Level(below, above, block, 1, shape.nic_bandwidth, 1, shape.hop_latency))
            block *= shape.arity
        return Hierarchy(shape.num_gpus, domain, shape.nvlink_bandwidth, shape.nvlink_latency, tuple(levels))


builders.add(
    "tree",
    Tree(),
    summary="tree of switches with one link up each",
    source="dally-towles-2004",
)
