"""Expert transports: how token rows travel between the ranks of an expert group. One file each, found by name."""

from typing import Protocol

import numpy as np

from moesim.base.numeric import Numeric
from moesim.base.registry import Registry
from moesim.cost.machine import Group, Machine
from moesim.workload.ops import ExpertLeg
from moesim.workload.setting import LayoutPasses


class Transport(Protocol):
    """What a transport declares. Times in s, memory in B, shares of a GPU's SMs in [0, 1].

    It may also say that it ``carries_scales`` of rows in a low precision beside them, that it then ``casts_every_leg`` and
    not only the dispatch of the forward, and that its buffers are in
    ``symmetric_memory``, into which kernels of other ranks write. ``networks``: protocols over which it was measured; it
    has no profile of the others, None has one of all. ``max_ranks``: ranks of a group that it was seen to work with.
    """

    host_syncs: int

    def leg_time(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        """Time of one dispatch or combine on a group of more than one rank. [s]"""
        ...

    def passes(self, leg: ExpertLeg, group: Group) -> LayoutPasses:
        """HBM passes around the legs, in token copies."""
        ...

    def buffer_bytes(self, leg: ExpertLeg, group: Group, machine: Machine, routed_layers: Numeric) -> Numeric:
        """Memory that the transport holds on a rank with that many routed layers in flight. [B]"""
        ...

    def sm_share(self, group: Group, machine: Machine) -> Numeric:
        """Share of the SMs that a running leg occupies. [-]"""
        ...


transports: Registry[Transport] = Registry(
    "transport", package="moesim.cost.transports", entry_points="moesim.transports"
)


VERBS = ("infiniband", "roce")
"""Networks of NICs that a GPU can drive by itself: IBGDA knows no others."""


def profiled(transport: Transport, protocol: str) -> bool:
    """Whether a transport has been measured over a network."""
    networks: tuple[str, ...] | None = getattr(transport, "networks", None)
    return networks is None or protocol in networks


def leg_time(transport: Transport, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
    """Time of one leg; an expert group of one rank moves nothing. [s]"""
    return np.where(group.size > 1, transport.leg_time(leg, group, machine), 0.0)


def reached_domains(leg: ExpertLeg, group: Group) -> Numeric:
    """Expected number of distinct NVLink domains that a token's routes hit. [-]"""
    domains, experts = _limited(leg, group.nodes, group.nodes)
    return distinct_groups(domains, leg.top_k, experts)


def reached_ranks(leg: ExpertLeg, group: Group) -> Numeric:
    """Expected number of distinct ranks that a token's routes hit. [-]"""
    ranks, experts = _limited(leg, group.size, group.nodes)
    return distinct_groups(ranks, leg.top_k, experts)


def _limited(leg: ExpertLeg, parts: Numeric, domains: Numeric) -> tuple[Numeric, Numeric]:
    """Parts of a group, ranks or domains, that a token may choose among, and their experts.

    A router that is limited to M domains picks them first; the choices among their experts are then as free as before.
    One that picks groups of experts reaches the parts that hold those groups.
    """
    if leg.node_limit is not None:
        share = np.minimum(domains, leg.node_limit) / domains
        return parts * share, leg.num_experts * share
    share = leg.token_groups / leg.groups
    few = distinct_groups(np.minimum(parts, leg.groups), leg.token_groups, leg.groups)
    return np.where(np.greater_equal(parts, leg.groups), parts * share, few), leg.num_experts * share


def distinct_groups(num_groups: Numeric, top_k: int, num_experts: Numeric) -> Numeric:
    r"""Expected number of distinct groups that a token's routes hit. [-]

    .. math:: d(m) = m \left[1 - \binom{E - E/m}{k} / \binom{E}{k}\right]

    Experts are split evenly over ``num_groups`` groups and the ``top_k`` choices are uniform without repetition.
    """
    share = num_experts / num_groups
    missed: Numeric = 1.0
    for choice in range(top_k):
        missed = missed * np.maximum(num_experts - share - choice, 0) / (num_experts - choice)
    return num_groups * (1 - missed)
