"""Collectives that know a torus: rings along its dimensions, all of them at work at the same time."""

from functools import partial

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import PLAIN, larger, never, norm_of, pick
from moesim.cost.collectives.nccl import BASE, MICROSECOND, NVLINK_HOP, corrected, enabled, net_hop, rails
from moesim.cost.collectives.ring import MIX
from moesim.cost.machine import Group, Links


def torus_time(collective: str, trips: int, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a collective by rings along the dimensions of a torus; infinite on other networks. [s]

    .. math:: T = \alpha_0 + trips \left[\sum_i (d_i - 1) h_{net} + (g - 1) h_{nvl}\right]
              + trips \frac{n - 1}{n} \frac{S}{\epsilon \beta}

    with the rate of all dimensions together, see :func:`moesim.fabric.torus_rings.grid_rings`. Steps are those of a
    ring, so they take its corrections.

    Parameters
    ----------
    trips
        1 for all-gather and reduce-scatter, 2 for all-reduce.
    size
        Bytes as nccl-tests count them, S. [B]

    References
    ----------
    dally-towles-2004
    """
    share = group.reach.of("grid-share")
    if not enabled(links, "torus") or (isinstance(share, PLAIN) and share == 0):
        return never(size, group.size)
    wires = larger(rails(group, links, "grid-share"), 1.0)
    bandwidth = pick(group.per_node > 1, norm_of(links.nvlink_bandwidth, wires, MIX), wires)
    steps = group.reach.of("grid-steps") * net_hop("ring", "simple", links)
    local = (group.per_node - 1) * NVLINK_HOP["ring"]["simple"] * MICROSECOND
    latency = BASE["ring"]["simple"] * MICROSECOND + trips * (steps + local)
    bulk = trips * (group.size - 1) / group.size * size / bandwidth
    time = corrected(f"{collective}-ring-simple", size, latency, bulk, group, links)
    return pick((share > 0) & (group.nodes > 1), time, never(size, group.size))


for _collective, _trips in (("all-gather", 1), ("reduce-scatter", 1), ("all-reduce", 2)):
    algorithms.add(
        f"torus-{_collective}",
        Algorithm(_collective, partial(torus_time, _collective, _trips), "torus"),
        summary=f"{_collective.capitalize()} by rings along each dimension of a torus.",
        source="dally-towles-2004",
    )
