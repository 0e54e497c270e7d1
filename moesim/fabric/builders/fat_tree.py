"""Fat-trees of any number of levels and any oversubscription."""

from __future__ import annotations

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.clos import clos
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.shape import Shape


class FatTree(HierarchyBuilder):
    """All NICs of a node on one leaf, as many nodes a leaf as its ports allow."""

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the levels."""
        return clos(shape, rails=False)


builders.add(
    "fat-tree",
    FatTree(),
    summary="folded Clos network; the NICs of a node share a leaf",
    source="alfares2008",
)
