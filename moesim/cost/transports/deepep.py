"""DeepEP: a token crosses to each node once and fans out over NVLink there; SM kernels drive NVLink and RDMA."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Group, Machine
from moesim.cost.transports import distinct_groups, transports
from moesim.workload.setting import LayoutPasses
from moesim.workload.ops import ExpertLeg


class DeepEp:
    r"""Normal (training) kernels of DeepEP.

    .. math::

        T = T_0 + \left[(x / \beta_{rdma})^p + (c / (n_{SM} \beta_{SM}))^p + (y / \beta_{nvl})^p\right]^{1/p}

    with x the bytes to other nodes (a token once per node), c the token copies that the SMs handle (once per GPU), and
    y the NVLink bytes. The constants of dispatch and combine are fits on published timings, inside a node and across
    nodes apart. A dispatch that does not know its row counts exchanges them first.
    """

    host_syncs = 1

    def leg_time(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        """Time of one leg. [s]"""
        constants = machine.transports["deepep"]
        sms, norm, name = constants["num_sms"], constants["norm"], leg.direction
        payload = leg.busy_tokens * leg.row_bytes
        gpus = distinct_groups(group.size, leg.top_k, leg.num_experts)
        nodes = distinct_groups(group.nodes, leg.top_k, leg.num_experts)
        remote = 1 - 1 / group.per_node
        nvlink_bandwidth = constants[f"intra_{name}_nvlink_bandwidth"]

        copies = payload * gpus
        start: Numeric = (
            constants[f"inter_{name}_base"]
            + constants[f"inter_{name}_per_node"] * group.nodes
            + constants[f"inter_{name}_per_sqrt_token"] * np.sqrt(leg.busy_tokens)
        )
        rdma = payload * nodes * (1 - 1 / group.nodes) / constants[f"inter_{name}_rdma_bandwidth"]
        handled = copies / (sms * constants[f"inter_{name}_sm_bandwidth"])
        nvlink = copies * remote / nvlink_bandwidth
        across = start + (rdma**norm + handled**norm + nvlink**norm) ** (1 / norm)

        header = constants["intra_dispatch_token_bytes"] if name == "dispatch" else 0.0
        copied = copies + leg.busy_tokens * gpus * header
        start = constants[f"intra_{name}_base"] + constants[f"intra_{name}_per_token"] * leg.busy_tokens / sms
        handled = copied / (sms * constants[f"intra_{name}_sm_bandwidth"])
        nvlink = copied * remote / nvlink_bandwidth
        inside = start + (handled**norm + nvlink**norm) ** (1 / norm)

        counting = constants["notify_base"] + constants["notify_per_node"] * group.nodes if leg.counts else 0.0
        return counting + np.where(group.nodes > 1, across, inside)

    def passes(self, leg: ExpertLeg, group: Group) -> LayoutPasses:
        """Tokens go out as they are; the receiver expands one copy per GPU into a row per local route."""
        routes = float(leg.top_k)
        expand = distinct_groups(group.size, leg.top_k, leg.num_experts) + routes
        return LayoutPasses(0.0, expand, expand, 0.0, self.host_syncs)

    def buffer_bytes(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        """NVLink and RDMA staging buffers, sized by the library. [B]"""
        constants = machine.transports["deepep"]
        inside, across = constants["nvlink_buffer"], constants["rdma_buffer"]
        buffers = inside + np.where(group.nodes > 1, across, 0.0)
        return np.where(group.size > 1, buffers, 0.0)

    def sm_share(self, machine: Machine) -> Numeric:
        """SMs that DeepEP reserves. [-]"""
        return machine.transports["deepep"]["num_sms"] / machine.gpu.num_sms


transports.add(
    "deepep",
    DeepEp(),
    summary="DeepEP normal kernels: a token crosses to a node once, NVLink fan-out, SM driven.",
    source="deepep",
)
