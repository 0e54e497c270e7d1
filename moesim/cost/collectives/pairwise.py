"""Exchanges made of point-to-point messages: send/recv and the pairwise all-to-all."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.machine import Group, Links

MEGABYTE = 1e6


def send_recv_time(size: Numeric, group: Group, links: Links) -> Numeric:
    """Time of one message between neighbours of the group. [s]

    ``group`` has two ranks: in one node (NVLink) or in two (one NIC).
    """
    inside = links.p2p_latency + size / links.p2p_bandwidth
    across = links.nic_p2p_latency + size / links.nic_bandwidth
    return np.where(group.nodes > 1, across, inside)


def pairwise_all_to_all_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of an all-to-all of n - 1 send/recv pairs. [s]

    .. math::

        T = \alpha + \max\left(\frac{S (g - 1)}{n \beta_{nvl}} + \gamma \sqrt{S / 1\,\mathrm{MB}},
            \; \frac{S (n - g)}{n \beta_{nic}} \left(1 + \frac{S_h}{S}\right)\right)

    A GPU sends through its own NIC only: NICs do not add up as they do for a ring.

    Parameters
    ----------
    size
        Bytes a rank sends in total, its own share included, S. [B]

    References
    ----------
    nccl-tests-130
    """
    inside = size * (group.per_node - 1) / group.size / links.alltoall_bandwidth
    inside = inside + links.alltoall_ramp * np.sqrt(size / MEGABYTE)
    remote = (group.size - group.per_node) / group.size
    nic = links.nic_bandwidth * links.nic_alltoall_efficiency
    across = remote * (size + links.nic_alltoall_half_bytes) / nic
    start = links.nic_alltoall_base_latency + group.nodes * links.nic_alltoall_latency_per_node
    return np.where(group.nodes > 1, start + np.maximum(inside, across), links.alltoall_latency + inside)


algorithms.add(
    "send-recv",
    Algorithm("send-recv", send_recv_time),
    summary="One message between two ranks.",
    source="nccl-2.30.7",
)
algorithms.add(
    "pairwise-all-to-all",
    Algorithm("all-to-all", pairwise_all_to_all_time),
    summary="All-to-all as n - 1 send/recv pairs, each GPU on its own NIC.",
    source="nccl-tests-130",
)
