"""Ring all-gather, reduce-scatter and all-reduce over NVLink and NICs.

With g ranks of the group in each of N nodes, NCCL builds one ring for each NIC of a node, so the g NICs add up; the
slower of NVLink and NICs sets the pace.
"""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.machine import Group, Links

MEGABYTE = 1e6


def ring_bandwidth(group: Group, links: Links) -> Numeric:
    """Bus bandwidth of the rings of a group. [B/s]"""
    rails = group.per_node * links.nic_bandwidth * links.nic_ring_efficiency
    across = np.where(group.per_node > 1, np.minimum(links.nvlink_bandwidth, rails), rails)
    return np.where(group.nodes > 1, across, links.nvlink_bandwidth)


def ring_latency(group: Group, links: Links) -> Numeric:
    """Latency of one trip around the ring. [s]

    Inside a domain n - 1 NVLink hops. Across nodes: N - 1 NIC hops where each node has one rank; a fixed time per node
    for the rings that also run through the GPUs of each node.
    """
    inside = links.nvlink_base_latency + (group.size - 1) * links.nvlink_latency
    through = group.nodes * links.nic_ring_node_latency
    rail = links.nic_base_latency + (group.nodes - 1) * links.nic_latency
    return np.where(group.nodes > 1, np.where(group.per_node > 1, through, rail), inside)


def ring_all_gather_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a ring all-gather. [s]

    .. math:: T = \alpha(n, N) + \frac{n - 1}{n} \frac{S}{\beta} + \gamma \sqrt{S / 1\,\mathrm{MB}}

    The ramp (gamma) applies inside an NVLink domain.

    Parameters
    ----------
    size
        Bytes that each rank holds at the end, S. [B]
    group, links
        Ranks and their placement; latencies [s] and bandwidths [B/s per direction].

    References
    ----------
    nccl-2.30 (tuning.cc: ring steps, base and hop latency)
    """
    share = (group.size - 1) / group.size
    ramp = np.where(group.nodes > 1, 0.0, links.nvlink_ramp * np.sqrt(size / MEGABYTE))
    return ring_latency(group, links) + share * size / ring_bandwidth(group, links) + ramp


def ring_all_reduce_time(size: Numeric, group: Group, links: Links) -> Numeric:
    """Time of a ring all-reduce: a reduce-scatter, then an all-gather of the same buffer. [s]"""
    return 2 * ring_all_gather_time(size, group, links)


_SOURCE = "nccl-2.30.7"
algorithms.add(
    "ring-all-gather",
    Algorithm("all-gather", ring_all_gather_time),
    summary="All-gather along a ring, n - 1 hops.",
    source=_SOURCE,
)
algorithms.add(
    "ring-reduce-scatter",
    Algorithm("reduce-scatter", ring_all_gather_time),
    summary="Reduce-scatter along a ring, n - 1 hops; the mirror of the all-gather.",
    source=_SOURCE,
)
algorithms.add(
    "ring-all-reduce",
    Algorithm("all-reduce", ring_all_reduce_time),
    summary="All-reduce along a ring: reduce-scatter, then all-gather.",
    source=_SOURCE,
)
