"""Collectives in two levels: inside the node, then along the rails. Off unless the settings switch them on."""

from dataclasses import replace

from moesim.base.numeric import Boolean, Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import never, pick
from moesim.cost.collectives.pairwise import pairwise_all_to_all_time
from moesim.cost.collectives.ring import ring_time
from moesim.cost.machine import Group, Links


def hierarchical_all_to_all_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a two-step all-to-all; infinite inside one domain and with one rank a node. [s]

    .. math:: T = T_{a2a}(S; g, 1) + T_{a2a}(S; N, N)

    A rank sends g + N - 2 messages instead of n - 1, and every byte twice: it wins with small messages, and on networks
    where a message that stays on its rail meets fewer others.

    References
    ----------
    nccl-2.30.7
    """
    if not links.nccl.hierarchical:
        return never(size, group.size)
    node, rail = _parts(group)
    pairs = replace(links, nccl=replace(links.nccl, algorithms=None))  # both steps are pairs of messages
    first = pairwise_all_to_all_time(size, node, pairs)
    second = pairwise_all_to_all_time(size, rail, pairs, pattern="rail-all-to-all")
    return pick(_apart(group), never(size, group.size), first + second)


def two_level_all_reduce_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of an all-reduce in two levels; infinite inside one domain and with one rank a node. [s]

    .. math:: T = T_{RS}(S; g, 1) + T_{AR}(S / g; N, N) + T_{AG}(S; g, 1)

    Each rank sums its part along its rail. The three parts follow each other, each a ring of the Simple protocol.
    """
    if not links.nccl.hierarchical:
        return never(size, group.size)
    node, rail = _parts(group)
    rings = replace(links, nccl=replace(links.nccl, algorithms=None, protocols=None))
    scattered = ring_time("reduce-scatter", 1, "simple", size, node, rings)
    summed = ring_time("all-reduce", 2, "simple", size / group.per_node, rail, rings)
    gathered = ring_time("all-gather", 1, "simple", size, node, rings)
    return pick(_apart(group), never(size, group.size), scattered + summed + gathered)


def _parts(group: Group) -> tuple[Group, Group]:
    """Ranks of one node, and of one rail."""
    return Group(group.per_node, group.per_node), Group(group.nodes, 1.0 + 0.0 * group.nodes, group.reach)


def _apart(group: Group) -> Boolean:
    return (group.nodes < 2) | (group.per_node < 2)


algorithms.add(
    "hierarchical-all-to-all",
    Algorithm("all-to-all", hierarchical_all_to_all_time, "hierarchical"),
    summary="All-to-all inside each node, then along the rails, where it is switched on.",
    source="nccl-2.30.7",
)
algorithms.add(
    "two-level-all-reduce",
    Algorithm("all-reduce", two_level_all_reduce_time, "hierarchical"),
    summary="Reduce-scatter in each node, all-reduce along the rails, all-gather in each node, where it is switched on.",
    source="nccl-2.30.7",
)
