"""All-reduce along two complementary trees: few network hops, so it wins where latency counts."""

from functools import partial

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms, fastest
from moesim.cost.collectives.elementwise import floor_log2, interpolated, larger, log2, never, norm_of, pick, smaller
from moesim.cost.collectives.nccl import (
    BASE,
    LL128_SHARE,
    LL_SHARE,
    MICROSECOND,
    NVLINK_HOP,
    PROTOCOLS,
    corrected,
    enabled,
    lanes,
    ll_net_bandwidth,
    net_hop,
    rails,
)
from moesim.cost.collectives.ring import MIX
from moesim.cost.machine import Group, Links

FILL = {
    "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    "simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
}
"""Share of the bandwidth that trees reach at 64 B, 128 B, ... 512 MB (tuning.cc)."""
TWO_NODES, MORE_NODES = 41.4e9, 36e9
"""What a channel of a tree carries over two nodes and over more. [B/s]"""


def tree_bandwidth(group: Group, links: Links, protocol: str) -> Numeric:
    """Bus bandwidth of the trees of a group; two nodes use both directions of their NICs for each half. [B/s]"""
    channel = pick(group.nodes > 2, MORE_NODES, TWO_NODES)
    wires = rails(group, links) * pick(group.nodes > 2, 1.0, 2.0)
    both = pick(group.per_node > 1, norm_of(links.nvlink_bandwidth, wires, MIX), wires)
    across = smaller(LL128_SHARE * both, lanes(group, links) * channel)
    wide = pick(group.nodes > 1, across, LL128_SHARE * links.nvlink_bandwidth)
    if protocol == "ll":
        limit = pick(group.nodes > 1, ll_net_bandwidth(group), LL_SHARE * links.nvlink_bandwidth)
        return smaller(wide / 3.8, limit)
    if protocol == "ll128":
        return wide * pick(group.nodes > 1, 120 / 128, 7 / 9)
    return wide


def fill(size: Numeric, protocol: str) -> Numeric:
    """Share of the bandwidth that a tree reaches at a size, between the entries of the table by interpolation. [-]"""
    return interpolated(log2(larger(size, 64.0) / 64), FILL[protocol])


def tree_all_reduce_time(protocol: str, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a tree all-reduce across nodes in one protocol; inside one node the ring stands for both. [s]

    .. math:: T = \lambda \left(\alpha_0 + 2 [(g - 1) h_{nvl} + \lfloor \log_2 N \rfloor h_{net}]\right)
              + \frac{2 S}{\epsilon \beta F(S)}

    References
    ----------
    nccl-2.30.7 (tuning.cc)
    """
    if not enabled(links, "tree", protocol):
        return never(size, group.size)
    inside = (group.per_node - 1) * NVLINK_HOP["tree"][protocol] * MICROSECOND
    latency: Numeric = BASE["tree"][protocol] * MICROSECOND
    latency = latency + 2 * (inside + floor_log2(group.nodes) * net_hop("tree", protocol, links))
    bulk = 2 * size / (tree_bandwidth(group, links, protocol) * fill(size, protocol))
    time = corrected(f"all-reduce-tree-{protocol}", size, latency, bulk, group, links)
    allowed = group.nodes > 1
    if protocol == "ll128" and not links.nccl.ll128_net:
        allowed = allowed & (group.nodes < 1)
    return pick(allowed, time, never(size, group.size))


_WAYS = {protocol: partial(tree_all_reduce_time, protocol) for protocol in PROTOCOLS}
algorithms.add(
    "tree-all-reduce",
    Algorithm("all-reduce", fastest(_WAYS), "tree", _WAYS),
    summary="All-reduce up and down a pair of trees, log2 of the nodes deep.",
    source="nccl-2.30.7",
)
