"""Block all-to-all in two steps: inside the NVLink domain, then between GPUs of the same place in theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import collective_time
from moesim.cost.collectives.hierarchical import hierarchical_all_to_all_time
from moesim.cost.machine import Group, Machine
from moesim.cost.transports import transports
from moesim.cost.transports.nccl_alltoall import NcclAllToAll
from moesim.workload.ops import ExpertLeg
from moesim.workload.setting import LayoutPasses


class HierarchicalAllToAll(NcclAllToAll):
    """Every row moves twice, in fewer and larger messages; rows are sorted once more between the steps."""

    def leg_time(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        """Both steps where the group spans domains and has several ranks in each; else the plain exchange. [s]"""
        size = leg.busy_tokens * leg.top_k * leg.row_bytes
        plain = collective_time("all-to-all", size, group, machine.links)
        two_steps = (group.nodes > 1) & (group.per_node > 1)
        if not np.any(two_steps):
            return plain
        links = replace(machine.links, nccl=replace(machine.links.nccl, hierarchical=True))
        return np.where(two_steps, hierarchical_all_to_all_time(size, group, links), plain)

    def passes(self, leg: ExpertLeg, group: Group) -> LayoutPasses:
        """Those of the plain exchange, and a read and a write of every row between the steps."""
        plain = super().passes(leg, group)
        between = np.where((group.nodes > 1) & (group.per_node > 1), 2.0 * leg.top_k, 0.0)
        return replace(
            plain,
            after_dispatch=plain.after_dispatch + between,
            before_combine=plain.before_combine + between,
        )


transports.add(
    "nccl-hierarchical",
    HierarchicalAllToAll(),
    summary="Block all-to-all in two steps, inside each node and then between nodes: fewer, larger messages.",
    source="tutel-2023",
)
