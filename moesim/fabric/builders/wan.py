"""Data centres joined by a wide-area network."""

from __future__ import annotations

from dataclasses import replace

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.hierarchy import Hierarchy, Level
from moesim.fabric.shape import Shape, refuse


class Wan(HierarchyBuilder):
    """A network of its own in each site, and one link of limited bandwidth from each site to the others."""

    inside = "rail"

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the levels of a site, and the WAN above them."""
        if shape.sites < 2 or shape.num_gpus % shape.sites:
            raise refuse("sites", f"{shape.num_gpus} GPUs are not shared out by {shape.sites} sites", "2 sites or more")
        if shape.num_gpus // shape.sites % max(shape.nvlink_domain, shape.gpus_per_node):
            raise refuse("sites", f"{shape.sites} sites split a node or an NVLink domain", "whole domains in each site")
        if shape.wan_bandwidth <= 0:
            raise refuse("wan_bandwidth", "sites without a bandwidth between them", "the bandwidth of a site")
        site = builders.get(self.inside).reduced(replace(shape, num_gpus=shape.num_gpus // shape.sites, sites=1))
        assert isinstance(site, Hierarchy)
        if not site.levels:
            raise refuse("sites", f"a site of {site.world} GPUs is a single NVLink domain", "more nodes a site")
        gate = Level(
            site.levels[-1].into, "wan", site.world, 1, shape.wan_bandwidth, 1, shape.wan_latency / 2
        )  # up and down
        levels = tuple(replace(level, period=site.world) for level in site.levels)
        return replace(site, world=shape.num_gpus, levels=(*levels, gate))


builders.add(
    "wan",
    Wan(),
    summary="rail-optimised sites joined by a link of limited bandwidth and long latency",
    source="diloco-2023",
)
