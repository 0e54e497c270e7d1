"""Rails that never meet."""

from __future__ import annotations

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.clos import clos
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.shape import Shape


class RailOnly(HierarchyBuilder):
    """One network for each place in a node; traffic between rails crosses NVLink first."""

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the levels."""
        return clos(shape, rails=True, joined=False)


builders.add(
    "rail-only",
    RailOnly(),
    summary="one separate network a rail; other rails are reached through NVLink",
    source="wang2023-rail-only",
)
