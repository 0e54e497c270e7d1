"""What each kind of topology answers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from moesim.fabric.graph import Topology, hierarchy_graph
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import Reduced


class Builder(ABC):
    """A kind of topology: a shape to its tiers, and to the graph of every link."""

    @abstractmethod
    def reduced(self, shape: Shape) -> Reduced:
        """Return the fabric as tiers; a `SpecError` where the parts at hand cannot join the GPUs."""

    @abstractmethod
    def graph(self, shape: Shape) -> Topology:
        """Return the fabric with every vertex and link."""


class HierarchyBuilder(Builder):
    """A kind that is a tree once parallel switches are taken together."""

    @abstractmethod
    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the levels."""

    def graph(self, shape: Shape) -> Topology:
        """Return the folded Clos network of the levels."""
        return hierarchy_graph(self.reduced(shape))
