"""Ring all-gather, reduce-scatter and all-reduce over NVLink and NICs.

With g ranks of the group in each of N nodes, NCCL builds one ring for each NIC of a node, so the g NICs add up; the
slower of NVLink and NICs sets the pace.
"""

from functools import partial

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms, fastest
from moesim.cost.collectives.elementwise import never, norm_of, pick, smaller
from moesim.cost.collectives.nccl import (
    BASE,
    LL128_CHANNEL,
    LL128_SHARE,
    LL_SHARE,
    MICROSECOND,
    NVLINK_HOP,
    PROTOCOLS,
    corrected,
    enabled,
    factor,
    lanes,
    ll_net_bandwidth,
    net_hop,
    rails,
)
from moesim.cost.machine import Group, Links

MOST = 1e18
"""Bytes up to which LL128 is taken where no fit knows better; where NCCL leaves it earlier, a fit says so. [B]"""
MIX = 4.0
"""Power of the norm that joins the rates of NVLink and NICs of one ring."""
MULTI_NODE_ALL_REDUCE = 1.4
"""Factor on the start of an all-reduce across nodes in the Simple protocol."""


def ring_bandwidth(group: Group, links: Links, protocol: str = "simple") -> Numeric:
    """Bus bandwidth of the rings of a group. [B/s]

    References
    ----------
    nccl-2.30.7 (tuning.cc): LL carries half and meets a limit of its own, LL128 92 % and a limit a channel.
    """
    wires = rails(group, links)
    across = pick(group.per_node > 1, norm_of(links.nvlink_bandwidth, wires, MIX), wires)
    if protocol == "ll":
        return pick(group.nodes > 1, smaller(ll_net_bandwidth(group), across / 2), LL_SHARE * links.nvlink_bandwidth)
    if protocol == "ll128":
        inside, across = LL128_SHARE * links.nvlink_bandwidth, LL128_SHARE * across
        return pick(group.nodes > 1, smaller(across, lanes(group, links) * LL128_CHANNEL), inside)
    return pick(group.nodes > 1, across, links.nvlink_bandwidth)


def ring_latency(trips: int, group: Group, links: Links, protocol: str = "simple") -> Numeric:
    r"""Latency of trips around the ring. [s]

    .. math:: \alpha = \alpha_0 + (q - m) h_{nvl} + m h_{net}, \qquad q = trips (n - 1), \quad m = trips (N - 1)

    Rings with one rank a node take the network hop of a tree.
    """
    steps, crossings = trips * (group.size - 1), trips * (group.nodes - 1)
    table = pick(group.per_node > 1, net_hop("ring", protocol, links), net_hop("tree", protocol, links))
    base, hop = BASE["ring"][protocol] * MICROSECOND, NVLINK_HOP["ring"][protocol] * MICROSECOND
    if protocol != "simple":
        return base + (steps - crossings) * hop + crossings * table
    inside = links.nvlink_base_latency + steps * links.nvlink_latency
    across = links.nic_base_latency + (steps - crossings) * hop + crossings * table
    if trips > 1:
        across = across * MULTI_NODE_ALL_REDUCE
    return pick(group.nodes > 1, across, inside)


def ring_time(collective: str, trips: int, protocol: str, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of one ring collective in one protocol. [s]

    .. math:: T = \lambda \alpha(n, N) + trips \frac{n - 1}{n} \frac{S}{\epsilon \beta} + \kappa \sqrt{S / 1\,\mathrm{MB}}

    NCCL leaves LL128 at some size for Simple, on some systems before Simple is faster; a fit may tell that size.

    Parameters
    ----------
    trips
        Times around the ring: 1 for all-gather and reduce-scatter, 2 for all-reduce.
    size
        Bytes as nccl-tests count them, S. [B]
    group, links
        Ranks and their placement; latencies [s] and bandwidths [B/s per direction].

    References
    ----------
    nccl-2.30.7 (tuning.cc: ring steps, base and hop latency)
    """
    if not enabled(links, "ring", protocol):
        return never(size, group.size)
    share = trips * (group.size - 1) / group.size
    latency, bandwidth = ring_latency(trips, group, links, protocol), ring_bandwidth(group, links, protocol)
    ramp = pick(group.nodes > 1, 0.0, trips * links.nvlink_ramp) if protocol == "simple" else 0.0
    time = corrected(f"{collective}-ring-{protocol}", size, latency, share * size / bandwidth, group, links, ramp)
    if protocol != "ll128":
        return time
    allowed = size <= factor(links, f"{collective}-ring-ll128", "most", group, MOST)
    if not links.nccl.ll128_net:
        allowed = allowed & (group.nodes < 2)
    return pick(allowed, time, never(size, group.size))


for _collective, _trips, _what in (
    ("all-gather", 1, "All-gather along a ring, n - 1 hops."),
    ("reduce-scatter", 1, "Reduce-scatter along a ring, n - 1 hops; the mirror of the all-gather."),
    ("all-reduce", 2, "All-reduce along a ring: reduce-scatter, then all-gather."),
):
    _ways = {protocol: partial(ring_time, _collective, _trips, protocol) for protocol in PROTOCOLS}
    algorithms.add(
        f"ring-{_collective}",
        Algorithm(_collective, fastest(_ways), "ring", _ways),
        summary=_what,
        source="nccl-2.30.7",
    )
