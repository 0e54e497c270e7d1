"""Block all-to-all: rows are packed by destination rank and exchanged by NCCL, then sorted into expert order."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import collective_time
from moesim.cost.machine import Group, Machine
from moesim.cost.transports import transports
from moesim.workload.ops import ExpertLeg
from moesim.workload.setting import LayoutPasses


class NcclAllToAll:
    """One row per route travels, however many routes of a token end on the same GPU."""

    host_syncs = 1

    def leg_time(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        """Pairwise all-to-all of ``tokens x top_k`` rows. [s]"""
        size = leg.busy_tokens * leg.top_k * leg.row_bytes
        return collective_time("all-to-all", size, group, machine.links)

    def passes(self, leg: ExpertLeg, group: Group) -> LayoutPasses:
        """Read the tokens and write a row per route; with several local experts, sort the received rows once more."""
        routes = float(leg.top_k)
        local_experts = leg.num_experts / group.size
        resort = np.where((group.size > 1) & (local_experts > 1), 2 * routes, 0.0)
        return LayoutPasses(1 + routes, resort, resort, 1 + routes, self.host_syncs)

    def buffer_bytes(self, leg: ExpertLeg, group: Group, machine: Machine, routed_layers: Numeric) -> Numeric:
        """Nothing lasting: send and receive tensors are ordinary activations. [B]"""
        return 0.0

    def sm_share(self, group: Group, machine: Machine) -> Numeric:
        """One SM per NCCL channel. [-]"""
        return machine.transports["nccl-alltoall"]["num_sms"] / machine.gpu.num_sms


transports.add(
    "nccl-alltoall",
    NcclAllToAll(),
    summary="Block all-to-all by NCCL: one row per route, host reads the row counts.",
    source="megatron-lm",
)
