"""Rail-optimised fat-trees."""

from __future__ import annotations

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.clos import clos
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.shape import Shape


class Rail(HierarchyBuilder):
    """The GPUs of one place in their nodes share a leaf; rails meet at the spine."""

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the levels."""
        return clos(shape, rails=True)


builders.add(
    "rail",
    Rail(),
    summary="rail-optimised folded Clos network; each GPU of a node on a leaf of its own",
    source="nvidia-dgx-superpod",
)
