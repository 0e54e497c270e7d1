"""Exchanges made of point-to-point messages: send/recv and the pairwise all-to-all(v)."""

from typing import Literal

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import larger, never, pick, root
from moesim.cost.collectives.nccl import MEGABYTE, corrected, enabled
from moesim.cost.machine import Group, Links


def send_recv_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of one message between neighbours of a group. [s]

    .. math:: T = \alpha + S / (\epsilon \beta)

    Inside a node a message takes all of NVLink, across nodes a share of its NIC that measurements tell: of 400 Gb/s a pair of
    nodes reaches nine tenths, a chain of ten nodes a half. Both are carried to other NICs by their rate.
    """
    inside = corrected("send-recv-pairwise-simple", size, links.p2p_latency, size / links.p2p_bandwidth, group, links)
    wire = links.nic_bandwidth * group.reach.of("ring")
    across = corrected("send-recv-pairwise-simple", size, links.nic_p2p_latency, size / wire, group, links)
    across = across + group.reach.of("hop-latency")
    return pick(group.nodes > 1, across, inside)


def pairwise_all_to_all_time(
    size: Numeric,
    group: Group,
    links: Links,
    skew: Numeric = 1.0,
    pattern: Literal["all-to-all", "rail-all-to-all"] = "all-to-all",
) -> Numeric:
    r"""Time of an all-to-all of n - 1 send/recv pairs. [s]

    .. math::

        T = \lambda \alpha + \max\left(\frac{r S (g - 1)}{n \epsilon \beta_{nvl}} + \gamma \sqrt{S / 1\,\mathrm{MB}},
            \; \frac{(r S + S_h) (n - g)}{n \epsilon \beta_{nic}}\right)

    A GPU sends through its own NIC only: NICs do not add up as they do for a ring. Across nodes the start grows with
    the ranks, :math:`\alpha = \alpha_0 + \alpha_1 n / 8`: a batch of eight messages after the other.

    Parameters
    ----------
    size
        Bytes a rank sends on average, its own share included, S. [B]
    skew
        Bytes that the busiest rank sends or receives over the average, r; 1 where all are alike. [-]
    pattern
        What of the network the messages meet.

    References
    ----------
    nccl-tests-130
    """
    if not enabled(links, "pairwise"):
        return never(size, group.size)
    name = "all-to-all-pairwise-simple"
    busy = skew * size
    local = busy * (group.per_node - 1) / group.size / links.alltoall_bandwidth
    ramp = links.alltoall_ramp
    alone = corrected(name, size, links.alltoall_latency, local, group, links, ramp)
    away = (group.size - group.per_node) / group.size
    fits, net = links.fits, f"{name}-net"
    half = links.nic_alltoall_half_bytes * fits.get(f"{net}-half-bytes", 1.0)
    rate = links.nic_bandwidth * links.nic_alltoall_efficiency * fits.get(f"{net}-bandwidth", 1.0)
    ranks = group.size / 8 * links.nic_alltoall_latency_per_node * fits.get(f"{net}-per-rank", 1.0)
    rate = rate * group.reach.of(pattern)
    start = links.nic_alltoall_base_latency * fits.get(f"{net}-latency", 1.0) + ranks + group.reach.of("far-latency")
    across = start + larger(local + ramp * root(size / MEGABYTE), away * (busy + half) / rate)
    return pick(group.nodes > 1, across, alone)


algorithms.add(
    "send-recv",
    Algorithm("send-recv", send_recv_time, "pairwise"),
    summary="One message between two ranks.",
    source="nccl-2.30.7",
)
algorithms.add(
    "pairwise-all-to-all",
    Algorithm("all-to-all", pairwise_all_to_all_time, "pairwise"),
    summary="All-to-all as n - 1 send/recv pairs, each GPU on its own NIC.",
    source="nccl-tests-130",
)
