"""GPUs of one NVLink domain, fully connected through its switches."""

from __future__ import annotations

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.clos import one_domain
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.shape import Shape, refuse


class NvlinkDomain(HierarchyBuilder):
    """Every GPU at full bandwidth to every other: a star. Bisection n / 2 times the bandwidth of a GPU, diameter 2."""

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the star; more GPUs than a domain holds have no way to each other."""
        if shape.num_gpus > shape.nvlink_domain:
            what = f"{shape.num_gpus} GPUs do not fit in an NVLink domain of {shape.nvlink_domain}"
            raise refuse("num_gpus", what, "fewer nodes, or a fabric between domains")
        return one_domain(shape)


builders.add(
    "nvlink-domain",
    NvlinkDomain(),
    summary="GPUs behind the NVLink switches of a node or rack, and no network",
    source="nvidia-hgx",
)
