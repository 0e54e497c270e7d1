"""The common form of transports that send a token to each NVLink domain once and fan it out over NVLink there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Group, Machine
from moesim.cost.transports import VERBS, reached_domains, reached_ranks
from moesim.workload.ops import ExpertLeg
from moesim.workload.setting import LayoutPasses


class Deduplicated:
    r"""Transport whose legs are limited by RDMA, by the SMs that copy, and by NVLink.

    .. math::

        T = T_0 + \left[(x / \beta_{rdma})^p + (c / (n_{SM} \beta_{SM}))^p + (y / \beta_{nvl})^p\right]^{1/p}

    with x the bytes to other NVLink domains (a token once per domain), c the token copies that the SMs handle (once per
    GPU), and y the bytes of rows that leave a GPU over NVLink. Wires and SMs work side by side; what the SMs do adds up:
    inside a domain they also spend time on every copy, as on ``token_bytes`` more, and read or sum every token once, at
    ``token_bandwidth`` each. :math:`T_0` grows with the tokens and their square root, and inside a domain with the
    bytes of a row and the copies of a token. Constants ``intra_*`` hold inside a domain, ``inter_*`` across; dispatch and combine
    have their own. Balanced routing; a hot rank scales its tokens.

    Parameters
    ----------
    name
        Key of the constants.
    host_syncs
        Times per dispatch that the host waits for the row counts.
    networks
        Protocols that its constants hold for.
    max_ranks
        Ranks of a group that it was seen to work with; None knows no end. [-]
    """

    carries_scales = True

    def __init__(
        self, name: str, host_syncs: int, networks: tuple[str, ...] = VERBS, max_ranks: int | None = None
    ) -> None:
        self.name = name
        self.host_syncs = host_syncs
        self.networks = networks
        self.max_ranks = max_ranks

    def leg_time(self, leg: ExpertLeg, group: Group, machine: Machine) -> Numeric:
        """Time of one leg. [s]"""
        constants = machine.transports[self.name]
        counting: Numeric = 0.0
        if leg.counts and "notify_base" in constants:
            counting = constants["notify_base"] + constants["notify_per_node"] * group.nodes
        return counting + leg_seconds(leg, group, constants)

    def passes(self, leg: ExpertLeg, group: Group) -> LayoutPasses:
        """Tokens go out as they are; the receiver expands one copy per GPU into a row per local route."""
        routes = float(leg.top_k)
        expand = reached_ranks(leg, group) + routes
        return LayoutPasses(0.0, expand, expand, 0.0, self.host_syncs)

    def buffer_bytes(self, leg: ExpertLeg, group: Group, machine: Machine, routed_layers: Numeric) -> Numeric:
        """Staging buffers: of fixed size, or for the token copies that arrive on a rank. [B]"""
        constants = machine.transports[self.name]
        arriving = leg.busy_tokens * leg.row_bytes * reached_ranks(leg, group)
        fixed = constants.get("nvlink_buffer", 0.0) + np.where(group.nodes > 1, constants.get("rdma_buffer", 0.0), 0.0)
        return np.where(group.size > 1, fixed + constants.get("buffer_copies", 0.0) * arriving, 0.0)

    def sm_share(self, group: Group, machine: Machine) -> Numeric:
        """SMs that the kernels of a leg occupy. [-]"""
        constants = machine.transports[self.name]
        across = constants.get("inter_num_sms", constants["num_sms"])
        return np.where(group.nodes > 1, across, constants["num_sms"]) / machine.gpu.num_sms


def leg_seconds(leg: ExpertLeg, group: Group, constants: Mapping[str, Numeric]) -> Numeric:
    """Time of one leg without the exchange of counts, for the constants of a transport. [s]"""
    return np.where(group.nodes > 1, _across(leg, group, constants), _inside(leg, group, constants))


def _across(leg: ExpertLeg, group: Group, constants: Mapping[str, Numeric]) -> Numeric:
    name = f"inter_{leg.direction}"
    norm = constants.get(f"{name}_norm", constants["norm"])
    payload = leg.busy_tokens * leg.row_bytes
    domains = reached_domains(leg, group)
    copies = payload * reached_ranks(leg, group)
    start: Numeric = (
        constants[f"{name}_base"]
        + constants.get(f"{name}_per_node", constants.get(f"{name}_per_domain", 0.0)) * group.nodes
        + constants.get(f"{name}_per_sqrt_token", 0.0) * np.sqrt(leg.busy_tokens)
        + group.reach.of("far-latency")
    )
    rdma = payload * domains * (1 - 1 / group.nodes) / constants[f"{name}_rdma_bandwidth"]
    rdma = rdma / group.reach.of("all-to-all")
    handled = copies / sm_rate(name, constants, constants.get("inter_num_sms", constants["num_sms"]))
    nvlink = copies * (1 - 1 / group.per_node) / constants[f"intra_{leg.direction}_nvlink_bandwidth"]
    return start + (rdma**norm + handled**norm + nvlink**norm) ** (1 / norm)


def _inside(leg: ExpertLeg, group: Group, constants: Mapping[str, Numeric]) -> Numeric:
    name, sms = f"intra_{leg.direction}", constants["num_sms"]
    norm = constants.get(f"{name}_norm", constants["norm"])
    header = constants.get(f"{name}_token_bytes", 0.0)
    reached = reached_ranks(leg, group)
    copies = leg.busy_tokens * reached
    start: Numeric = constants[f"{name}_base"]
    for term, amount in (
        ("per_copy", reached),
        ("per_row_byte", leg.row_bytes),
        ("per_token", leg.busy_tokens / sms),
        ("per_sqrt_token", np.sqrt(leg.busy_tokens)),
    ):
        start = start + constants.get(f"{name}_{term}", 0.0) * amount
    token = leg.busy_tokens * leg.row_bytes / (sms * constants.get(f"{name}_token_bandwidth", np.inf))
    handled = copies * (leg.row_bytes + header) / sm_rate(name, constants, sms) + token
    nvlink = copies * leg.row_bytes * (1 - 1 / group.per_node) / constants[f"{name}_nvlink_bandwidth"]
    return start + (handled**norm + nvlink**norm) ** (1 / norm)


def sm_rate(name: str, constants: Mapping[str, Numeric], sms: Numeric) -> Numeric:
    r"""What the SMs of a leg move together, :math:`n_{SM}^q \beta_{SM}`; measurements find q a little off 1. [B/s]"""
    return sms ** constants.get(f"{name}_sm_power", 1.0) * constants[f"{name}_sm_bandwidth"]
