"""GPUs of one node without NVLink."""

from __future__ import annotations

from moesim.fabric.builder import HierarchyBuilder
from moesim.fabric.builders import builders
from moesim.fabric.hierarchy import Hierarchy, Level
from moesim.fabric.shape import Shape, refuse

PER_SWITCH = 4
"""GPUs behind a PCIe switch that has one link of the same width to the host. [-]"""


class PcieNode(HierarchyBuilder):
    """PCIe switches of four GPUs each, joined by the host over one link a switch."""

    def reduced(self, shape: Shape) -> Hierarchy:
        """Return the two levels; a second node cannot be reached."""
        if shape.num_nodes > 1:
            raise refuse("num_nodes", f"{shape.num_nodes} nodes have no network between them", "1 node")
        count, hop = shape.num_gpus, shape.hop_latency
        levels = [Level("pcie", "pcie-switch", 1, 1, shape.pcie_bandwidth, 1, hop)]
        if count > PER_SWITCH:
            levels.append(Level("pcie-switch", "host", PER_SWITCH, 1, shape.pcie_bandwidth, 1, hop))
        return Hierarchy(count, 1, shape.nvlink_bandwidth, shape.nvlink_latency, tuple(levels) if count > 1 else ())


builders.add(
    "pcie-node",
    PcieNode(),
    summary="one node whose GPUs share PCIe switches of four and the host bridge",
    source="pcie-node-layout",
)
