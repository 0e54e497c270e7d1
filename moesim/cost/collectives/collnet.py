"""CollNet: switches of the network add (SHARP on InfiniBand). Off unless the settings switch it on."""

from functools import partial

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import never, pick, smaller
from moesim.cost.collectives.nccl import MICROSECOND, SIMPLE_NET_HOP, corrected, enabled, rails
from moesim.cost.machine import Group, Links

NVLINK_HOP, PER_PEER, NET_HOP = 3.7 * MICROSECOND, 0.4 * MICROSECOND, 31.0
ALL_REDUCE_SHARE, GATHER_SHARE = 0.85, 0.9


def collnet_time(collective: str, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a collective with sums in the network (CollNetDirect). [s]

    .. math:: T = 2 [\min(1, g - 1) h_{nvl} + 0.4\,\mu s (g - 1)] + h_{net} + \frac{S}{\beta}

    with :math:`\beta = 0.85 \beta_{nics} / 2` for an all-reduce and :math:`\min(\beta_{nvl}, 0.9 \beta_{nics})` otherwise.

    References
    ----------
    nccl-2.30.7 (tuning.cc)
    """
    if not links.nccl.collnet or not enabled(links, "collnet"):
        return never(size, group.size)
    local = group.per_node - 1
    latency = 2 * (smaller(1.0, local) * NVLINK_HOP + PER_PEER * local) + NET_HOP / SIMPLE_NET_HOP * links.nic_latency
    wires = rails(group, links)
    bandwidth: Numeric
    if collective == "all-reduce":
        bandwidth = ALL_REDUCE_SHARE * wires / 2
    else:
        bandwidth = smaller(links.nvlink_bandwidth, GATHER_SHARE * wires)
    return pick(
        group.nodes < 2,
        never(size, group.size),
        corrected(f"{collective}-collnet-simple", size, latency, size / bandwidth, group, links),
    )


for _collective in ("all-reduce", "all-gather", "reduce-scatter"):
    algorithms.add(
        f"collnet-{_collective}",
        Algorithm(_collective, partial(collnet_time, _collective), "collnet"),
        summary=f"{_collective.capitalize()} with sums in the network switches (SHARP), where it is switched on.",
        source="nccl-2.30.7",
    )
