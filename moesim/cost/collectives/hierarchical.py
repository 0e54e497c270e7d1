"""All-to-all in two steps: inside the node, then along the rails. Off unless the settings switch it on."""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import never, pick
from moesim.cost.collectives.pairwise import pairwise_all_to_all_time
from moesim.cost.machine import Group, Links


def hierarchical_all_to_all_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a two-step all-to-all; infinite inside one domain and with one rank a node. [s]

    .. math:: T = T_{a2a}(S; g, 1) + T_{a2a}(S; N, N)

    A rank sends g + N - 2 messages instead of n - 1, and every byte twice: it wins with small messages.

    References
    ----------
    nccl-2.30.7
    """
    if not links.nccl.hierarchical:
        return never(size, group.size)
    node, rail = Group(group.per_node, group.per_node), Group(group.nodes, 1.0 + 0.0 * group.nodes)
    pairs = replace(links, nccl=replace(links.nccl, algorithms=None))  # both steps are pairs of messages
    first, second = (pairwise_all_to_all_time(size, part, pairs) for part in (node, rail))
    return pick((group.nodes < 2) | (group.per_node < 2), never(size, group.size), first + second)


algorithms.add(
    "hierarchical-all-to-all",
    Algorithm("all-to-all", hierarchical_all_to_all_time, "hierarchical"),
    summary="All-to-all inside each node, then along the rails, where it is switched on.",
    source="nccl-2.30.7",
)
