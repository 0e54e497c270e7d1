"""Row-wise exchange through symmetric memory (OLMo-core): one PUT or GET per route, no host lists, no sorting."""

from __future__ import annotations

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Group, Machine
from moesim.cost.memory_bound import traffic_time
from moesim.cost.transports import VERBS, transports
from moesim.workload.ops import ExpertLeg
from moesim.workload.setting import LayoutPasses

NAME = "nvshmem-rowwise"


class Rowwise:
    """Kernels write rows straight into the experts' buffers and read them back; counts stay on the GPU."""

    host_syncs = 0
    carries_scales = True
    casts_every_leg = True  # olmo-core-report, section 11.1.3: 33/32 bytes a value in all four
    symmetric_memory = True
    networks = VERBS

    def leg_time(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        r"""Time of one leg. [s]

        .. math::

            T = T_{map} + T_{bar} + \max\left(y \left(\frac{1}{n_b \beta_b} + \frac{1}{\beta_s}\right),\;
                \frac{y (1 - 1/n)}{\beta_{nvl}},\; \frac{r}{\rho}\right) + T_{hbm}(y + z)

        with y the bytes of all rows: the blocks copy those that stay on the GPU as they do the others. n_b blocks have a
        bandwidth of beta_b each until they share beta_s; r rows go to other domains at the message rate rho of a NIC.
        Only a forward dispatch builds the map; rows that are weighted as they leave have fewer blocks.

        Rows that come back are fetched into a buffer, and a kernel behind it sums those of a token: z bytes of all tokens.
        The weights of the rows get their gradient from that buffer before weighted rows leave, as many bytes again.

        References
        ----------
        olmo-core, olmo_symm_mem_rowwise.cuh and comm.py, commits bb865a54 and 0492878f
        """
        constants = machine.transports[NAME]
        rows = leg.busy_tokens * leg.top_k
        moved = rows * leg.row_bytes
        near = constants["weighted_blocks" if leg.weighted else "num_blocks"]
        blocks = np.where(group.nodes > 1, constants["far_blocks"], near)
        copied = moved * (1 / (blocks * constants["block_bandwidth"]) + 1 / constants["shared_bandwidth"])
        linked = moved * (1 - 1 / group.size) / machine.links.nvlink_bandwidth
        crossing = rows * (1 - group.per_node / group.size)
        wire = machine.links.nic_bandwidth * group.reach.of("all-to-all")
        network = np.maximum(crossing / constants["message_rate"], crossing * leg.row_bytes / wire)
        start = constants["barrier"] + group.reach.of("far-latency") + (constants["route_map"] if leg.counts else 0.0)
        gathered: Numeric = 0.0
        if leg.direction == "combine" or leg.weighted:
            gathered = traffic_time(moved + leg.busy_tokens * (leg.return_bytes or leg.row_bytes), machine.gpu)
        return start + np.maximum(np.maximum(copied, linked), network) + gathered

    def passes(self, leg: ExpertLeg, group: Group) -> LayoutPasses:
        """Rows land in expert order, and the legs sum those that come back: no layout pass of its own."""
        return LayoutPasses()

    def buffer_bytes(self, leg: ExpertLeg, group: Group, machine: Machine, routed_layers: Numeric) -> Numeric:
        """One dispatch buffer for each routed layer in flight and the shared combine buffer, with spare capacity. [B]"""
        constants = machine.transports[NAME]
        rows = np.maximum(constants["capacity_factor"], leg.load) * leg.tokens * leg.top_k
        back = leg.return_bytes or leg.row_bytes
        buffers = routed_layers * leg.row_bytes + constants["shared_leases"] * back
        return np.where(group.size > 1, rows * buffers, 0.0)

    def sm_share(self, group: Group, machine: Machine) -> Numeric:
        """Share of the GPU that a grouped GEMM loses beside a leg. [-]"""
        slowdown = machine.transports[NAME]["gemm_slowdown"]
        return slowdown / (1 + slowdown)


transports.add(
    NAME,
    Rowwise(),
    summary="One message per route into symmetric memory (OLMo-core), no host sync, no sorting.",
    source="olmo-core-report",
)
