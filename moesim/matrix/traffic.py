"""Bytes of the messages of a step, in all and out of an NVLink domain, by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Group
from moesim.cost.replication import gather_messages, stage_messages
from moesim.cost.transports import reached_domains, reached_ranks
from moesim.matrix.case import Case, Terms
from moesim.workload.ops import ExpertLeg, Message


def sent_share(collective: str, size: Numeric) -> Numeric:
    """Bytes that a rank sends over the size of a message as nccl-tests counts it. [-]"""
    if collective == "send-recv":
        return np.where(np.greater(size, 1), 1.0, 0.0)
    return (2.0 if collective == "all-reduce" else 1.0) * (size - 1) / size


def crossing_share(collective: str, group: Group) -> Numeric:
    """Bytes that leave the NVLink domain of a rank over the size of a message; rings cross once a domain. [-]"""
    size, per_node = group.size, group.per_node
    if collective in ("all-to-all", "send-recv"):
        return (
            (size - per_node) / np.maximum(size, 1.0)
            if collective == "all-to-all"
            else np.greater(size, per_node) * 1.0
        )
    share = (2.0 if collective == "all-reduce" else 1.0) * (size - 1) / size / per_node
    return np.where(size > per_node, share, 0.0)


def leg_copies(case: Case, leg: ExpertLeg) -> Numeric:
    """Rows of a token that leave the rank. [-]"""
    group = case.plan.expert_group
    rows = reached_ranks(leg, group) if case.deduplicates else float(leg.top_k)
    return rows * (1 - 1 / group.size)


def crossing_copies(case: Case, leg: ExpertLeg) -> Numeric:
    """Rows of a token that leave the NVLink domain. [-]"""
    group = case.plan.expert_group
    if case.deduplicates:
        return np.where(group.nodes > 1, reached_domains(leg, group) * (1 - 1 / group.nodes), 0.0)
    return leg.top_k * (1 - group.per_node / group.size)


def expert_bytes(case: Case) -> Numeric:
    """Token rows that leave a rank in a step, all legs. [B]"""
    return sum((n * leg.tokens * leg.row_bytes * leg_copies(case, leg) for _, leg, n in case.legs()), 0.0)


def expert_crossing(case: Case) -> Numeric:
    """Token rows that leave the NVLink domain of a rank in a step. [B]"""
    return sum((n * leg.tokens * leg.row_bytes * crossing_copies(case, leg) for _, leg, n in case.legs()), 0.0)


def state_messages(case: Case) -> Iterator[tuple[Message, float]]:
    """Messages about training state of a step: those of a kind in one, as bytes add up."""
    for key, size in case.read(_state_sizes).items():
        collective, axis = key.split(" over ")
        yield Message(collective, axis, size), 1.0


def _state_sizes(case: Case) -> Terms:
    """Sizes of the messages about training state by collective and axis, on average over the pipeline ranks. [B]"""
    plan, sharding = case.plan, case.plan.sharding
    found: Terms = {}

    def add(message: Message, times: float) -> None:
        key = f"{message.collective} over {message.axis}"
        found[key] = found.get(key, 0.0) + times * message.size

    for message, times in case.messages("dp"):
        add(message, times)
    kept = case.choices.reduction == "all-reduce"
    for stage, params in enumerate(plan.trained):
        for message in stage_messages(plan, stage):
            summed = kept and message.collective == "reduce-scatter"
            add(replace(message, collective="all-reduce") if summed else message, 1 / case.ranks)
        if sharding.optimizer and not sharding.weights:
            for message in gather_messages(plan, params):
                add(message, 1 / case.ranks)
    return found


def all_bytes(case: Case) -> Terms:
    """Bytes that a rank sends in a step, by class. [B]"""
    plan = case.plan
    found: Terms = {"ep": expert_bytes(case)}
    for name in ("tp", "cp"):
        found[name] = _sum(case, case.messages(name))
    found["dp"] = _sum(case, state_messages(case))
    found["pp"] = 2 * len(case.boundaries) * case.boundary_bytes * plan.num_micro_batches / case.ranks
    return found


def _sum(case: Case, found: Iterable[tuple[Message, float]]) -> Numeric:
    mesh = case.plan.mesh
    return sum((n * one.size * sent_share(one.collective, mesh.size(one.axis)) for one, n in found), 0.0)


def crossing_bytes(case: Case) -> Terms:
    """Bytes that leave the NVLink domain of a rank in a step, by class. [B]"""
    plan = case.plan
    shares: dict[tuple[str, str], Numeric] = {}

    def share(message: Message) -> Numeric:
        key = (message.collective, message.axis)
        if key not in shares:
            shares[key] = crossing_share(message.collective, plan.group(message.axis))
        return shares[key]

    found: Terms = {"ep": expert_crossing(case)}
    for name, several in (("tp", case.messages("tp")), ("cp", case.messages("cp")), ("dp", state_messages(case))):
        found[name] = sum((n * one.size * share(one) for one, n in several), 0.0)
    crossings: Numeric = sum((plan.boundary_crosses_nodes(stage) for stage in case.boundaries), 0.0)
    found["pp"] = 2 * crossings * case.boundary_bytes * plan.num_micro_batches / case.ranks
    return found


def link_seconds(case: Case) -> Terms:
    """The bytes of each class over the rate of the links that carry them. [s]"""
    links, outside = case.plan.machine.links, case.read(crossing_bytes)
    return {
        name: np.maximum(total - outside[name], 0.0) / links.nvlink_bandwidth + outside[name] / links.nic_bandwidth
        for name, total in case.read(all_bytes).items()
    }


@lru_cache
def link_seconds_of(name: str) -> Callable[[Case], Terms]:
    """The reading of the link seconds of one class."""
    return lambda case: {name: case.read(link_seconds)[name]}


def expert_messages(case: Case) -> Terms:
    """Legs of the expert exchange in a step: each starts once, however many rows it carries. [-]"""
    return {"ep": sum((n for _, _, n in case.legs()), 0.0) * case.exchanges}
