"""A NIC that several kinds of traffic share: how long each keeps it busy.

Expert rows, gradients and activations of a step leave by the same NIC. It is shared by active bytes: what one kind keeps
busy is not there for another at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable

from moesim.base.numeric import Numeric
from moesim.cost.collectives.elementwise import pick
from moesim.cost.machine import Group, Links
from moesim.cost.plan import Plan
from moesim.cost.stage import Keep, Ops
from moesim.cost.transports import reached_domains
from moesim.cost.transports.deduplicated import Deduplicated
from moesim.workload.ops import ExpertLeg, Message


def chunk_nic_time(plan: Plan, blocks: Iterable[Ops], keep: Keep) -> Numeric:
    """Time that the operations of a chunk keep the NIC of a rank busy, one direction. [s]"""
    known: dict[int, Numeric] = {}  # equal layers share their operations
    total: Numeric = 0.0
    for ops in blocks:
        if id(ops) not in known:
            known[id(ops)] = sum((_nic_time(plan, one.op.work, one.op.category, keep) for one in ops), 0.0)
        total = total + known[id(ops)]
    return total


def _nic_time(plan: Plan, work: object, category: str, keep: Keep) -> Numeric:
    if isinstance(work, Message):
        group = plan.group(work.axis)
        seconds = message_nic_time(work.collective, work.size, group, plan.machine.links)
    elif isinstance(work, ExpertLeg):
        seconds = leg_nic_time(work, plan.expert_group, plan.machine.links, isinstance(plan.transport, Deduplicated))
    else:
        return 0.0
    return seconds * keep.get(category, 1.0)


def message_nic_time(collective: str, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time that a collective keeps the NIC of a rank busy; nothing inside one NVLink domain. [s]

    .. math:: t = \frac{w S}{\beta_{nic}}, \qquad w = \frac{n - 1}{n g} \text{ (rings, twice for a sum)}, \quad
              \frac{n - g}{n} \text{ (all-to-all)}, \quad 1 \text{ (message)}
    """
    share = {
        "all-to-all": (group.size - group.per_node) / group.size,
        "send-recv": 1.0,
        "all-reduce": 2 * (group.size - 1) / group.size / group.per_node,
    }.get(collective, (group.size - 1) / group.size / group.per_node)
    wire = links.nic_bandwidth * group.reach.of("all-to-all" if collective == "all-to-all" else "ring")
    return pick(group.nodes > 1, share * size / wire, 0.0)


def leg_nic_time(leg: ExpertLeg, group: Group, links: Links, once: bool) -> Numeric:
    """Time that a dispatch or combine keeps the NIC of a rank busy. [s]

    ``once``: a token crosses to each other NVLink domain once, else as often as it has routes there.
    """
    copies = leg.top_k * (1 - group.per_node / group.size)
    if once:
        copies = reached_domains(leg, group) * (1 - 1 / group.nodes)
    seconds = leg.busy_tokens * leg.row_bytes * copies / (links.nic_bandwidth * group.reach.of("all-to-all"))
    return pick(group.nodes > 1, seconds, 0.0)


def beside(seconds: Numeric, busy: Numeric, window: Numeric) -> Numeric:
    r"""Time of a transfer that shares its NIC with another that is busy for a part of the time. [s]

    .. math:: T = \frac{t}{1 - f / 2}, \qquad f = t_{busy} / t_{window}

    Both get half of the NIC while both are active.
    """
    share = pick(window > busy, busy / pick(window > 0, window, 1.0), 1.0)
    return seconds / (1 - share / 2)
