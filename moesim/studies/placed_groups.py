"""Communicators of a step under many orders of the axes at once: a column of the prices for each order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from moesim.cost.machine import Group, Machine, Placed
from moesim.cost.plan import Plan
from moesim.evaluator import step_columns
from moesim.fabric.layout import Ints
from moesim.fabric.reach import FREE, MembersReach, Reach, StackedReach
from moesim.workload.mesh import AXES, Mesh

Order = tuple[str, ...]
Spans = tuple[tuple[int, int], ...]
"""Axes that a group spans, each by its size and the ranks between neighbours, the innermost first."""

EXPERT = ("etp", "ep", "edp")
GROUPS = {
    "dp-cp": ("dp", "cp"),
    "dense-shard": ("dp", "cp"),
    "dense-replica": ("dp", "cp"),
    "routed-shard": ("edp",),
    "routed-replica": ("edp",),
}
"""Axes that groups with another name span."""


def step_times_of(plan: Plan, orders: Sequence[tuple[Order, Order]]) -> NDArray[np.float64]:
    """Step time under each pair of orders, attention and experts, innermost axis first. [s]

    The same prices as of any step; only the communicators differ. Orders whose communicators are all alike are priced
    once.
    """
    mesh, machine = plan.mesh, plan.machine
    layouts = {axis: _Layouts(machine, mesh, axis, orders) for axis in AXES}
    strides = np.array([max(1, below("pp", attention, mesh)) for attention, _ in orders], dtype=np.int64)
    alike = np.stack([strides, *(one.which for one in layouts.values())])
    distinct, back = np.unique(alike, axis=1, return_inverse=True)
    groups = {axis: one.group(row) for (axis, one), row in zip(layouts.items(), distinct[1:], strict=True)}
    placed = replace(machine, placed=Placed(groups, distinct[0].astype(float)))
    steps = step_columns(replace(plan, machine=placed, shape=(distinct.shape[1],)))
    return np.asarray(steps[back.ravel()])


def spans(axis: str, order: Order, mesh: Mesh) -> Spans:
    """Axes that a group spans under an order, a split one by its parts; those of one rank are left out."""
    members = GROUPS.get(axis, (axis,))
    return tuple((ranks(one, mesh), below(one, order, mesh)) for one in order if one.partition(".")[0] in members)


def below(axis: str, order: Order, mesh: Mesh) -> int:
    """Ranks between neighbours of an axis: the product of the axes inside it. [-]"""
    if axis not in order:
        return 0
    return math.prod(ranks(inner, mesh) for inner in order[: order.index(axis)])


def ranks(axis: str, mesh: Mesh) -> int:
    """Ranks of an axis, or of the part of one: ``ep.8`` are eight neighbours, ``ep.x4`` four such sets. [-]"""
    _, split, count = axis.partition(".")
    return int(count.removeprefix("x")) if split else int(mesh.size(axis))


def order_of(axis: str, orders: tuple[Order, Order]) -> Order:
    """Which of the two orders an axis belongs to."""
    attention, expert = orders
    return expert if axis in EXPERT or axis.startswith("routed") else attention


def group_members(axis: str, along: Spans, mesh: Mesh, world: int) -> Ints:
    """Ranks of every group of an axis, neighbours next to each other."""
    groups = axis_members(world, along)
    if not axis.endswith(("shard", "replica")):
        return groups
    shard = int(mesh.size(f"{axis.partition('-')[0]}-shard"))
    parts = groups.reshape(len(groups), -1, shard)
    return parts.reshape(-1, shard) if axis.endswith("shard") else parts.transpose(0, 2, 1).reshape(-1, parts.shape[1])


def axis_members(world: int, axes: Spans) -> Ints:
    """Ranks by group and place, for groups that span several axes given by size and stride.

    Examples
    --------
    >>> axis_members(8, ((2, 1), (2, 4)))
    array([[0, 1, 4, 5],
           [2, 3, 6, 7]])
    """
    offsets = np.zeros(1, dtype=np.int64)
    for size, stride in sorted(axes, key=lambda axis: axis[1]):
        offsets = (np.arange(size, dtype=np.int64)[:, None] * stride + offsets).ravel()
    starts = np.arange(world, dtype=np.int64)
    for size, stride in axes:
        starts = starts[starts // stride % size == 0]
    return starts[:, None] + offsets


class _Layouts:
    """Distinct layouts of an axis, and which one each order has; those that no price tells apart count as one."""

    def __init__(self, machine: Machine, mesh: Mesh, axis: str, orders: Sequence[tuple[Order, Order]]) -> None:
        self.size = float(mesh.size(axis))
        self.parts: list[tuple[float, Reach]] = []
        known: dict[Spans, int] = {}
        plain: dict[float, int] = {}
        for pair in orders:
            along = spans(axis, order_of(axis, pair), mesh)
            if along in known:
                continue
            per_node, reach = _layout(machine, mesh, axis, along)
            number = plain.setdefault(per_node, len(self.parts)) if reach is FREE else len(self.parts)
            known[along] = number
            if number == len(self.parts):
                self.parts.append((per_node, reach))
        self.which = np.array([known[spans(axis, order_of(axis, pair), mesh)] for pair in orders], dtype=np.int64)

    def group(self, columns: Ints) -> Group:
        """The communicator, a column for each layout that is asked for."""
        per_node, reaches = zip(*self.parts, strict=True)
        alone = all(one is FREE for one in reaches)
        return Group(self.size, np.array(per_node)[columns], FREE if alone else StackedReach(reaches, columns))


def _layout(machine: Machine, mesh: Mesh, axis: str, along: Spans) -> tuple[float, Reach]:
    """Neighbours in an NVLink domain, and what the network leaves the groups."""
    members = group_members(axis, along, mesh, machine.num_gpus)
    per_node = neighbours(members, int(machine.nvlink_domain))
    network = machine.network
    if network is None or (network.free and network.incast_efficiency == 1):
        return float(per_node), FREE
    return float(per_node), MembersReach(network, members, per_node)


def neighbours(members: Ints, domain: int) -> int:
    """Members next to each other that share an NVLink domain: the fewest of any group and domain. [-]

    Examples
    --------
    >>> neighbours(np.array([[0, 1, 8, 9]]), 8), neighbours(np.array([[0, 8]]), 8)
    (2, 1)
    """
    homes = members // domain
    ends = [[0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)] for row in np.unique(homes, axis=0)]
    return min(last - first for row in ends for first, last in pairwise(row))
