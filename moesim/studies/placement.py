"""The order of the parallel axes on the ranks: what each order costs on the fabric, and the best one.

Ranks are numbered with the first axis of an order innermost. Attention and expert layers have orders of their own; both
have to put the same ranks into a pipeline stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from moesim.fabric.layout import Ints, Pattern
from moesim.fabric.network import Network
from moesim.fabric.tiers import members_bandwidth
from moesim.problem import Problem
from moesim.studies.fabric_groups import AxisTraffic, axis_traffic, problem_network
from moesim.workload.mesh import Mesh

ATTENTION = ("tp", "cp", "dp", "pp")
EXPERT = ("etp", "ep", "edp", "pp")
"""Axes of the two meshes in their usual order, the innermost first."""

Order = tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """One pair of orders and its seconds a step by axis, bytes over bandwidth. [s]"""

    attention: Order
    expert: Order
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds of all axes, one after the other. [s]"""
        return sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "attention_order": "-".join(self.attention),
            "expert_order": "-".join(self.expert),
            "total_s": self.total,
            "seconds_by_axis": self.seconds,
        }


@dataclass(frozen=True)
class Placements:
    """All legal orders, the cheapest first, and the usual one."""

    name: str
    fabric: str
    usual: Placement
    ranked: tuple[Placement, ...]

    @property
    def best(self) -> Placement:
        """The cheapest order; the usual one where none is cheaper."""
        return self.ranked[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "name": self.name,
            "fabric": self.fabric,
            "orders": len(self.ranked),
            "usual": self.usual.to_dict(),
            "best": self.best.to_dict(),
            "saved_s": self.usual.total - self.best.total,
            "ranked": [placement.to_dict() for placement in self.ranked],
        }


def placements(problem: Problem) -> Placements:
    """Score every legal order of the axes by the traffic of a step on the fabric.

    All groups of an axis run at the same time; the axes follow each other, so those that share NICs add up by their
    bytes. Overlap and latency do not count here.
    """
    plan = problem.plan()
    joined, fabric = problem_network(problem)
    mesh = plan.mesh
    pricer = _Pricer(joined, axis_traffic(plan), mesh)
    usual = pricer.placement(_used(ATTENTION, mesh), _used(EXPERT, mesh))
    others = [
        pricer.placement(attention, expert)
        for attention in permutations(usual.attention)
        for expert in permutations(usual.expert)
        if _below("pp", attention, mesh) == _below("pp", expert, mesh)
        and (attention, expert) != (usual.attention, usual.expert)
    ]
    ranked = sorted([usual, *others], key=lambda placement: placement.total)
    return Placements(problem.name, fabric, usual, tuple(ranked))


def _used(axes: Order, mesh: Mesh) -> Order:
    """Axes with more than one rank; an axis of one rank has no place."""
    return tuple(axis for axis in axes if int(mesh.size(axis)) > 1)


def _below(axis: str, order: Order, mesh: Mesh) -> int:
    """Ranks between neighbours of an axis: the product of the axes inside it. [-]"""
    if axis not in order:
        return 0
    return math.prod(int(mesh.size(inner)) for inner in order[: order.index(axis)])


class _Pricer:
    """Seconds of an order; groups that look alike are priced once."""

    def __init__(self, network: Network, traffic: list[AxisTraffic], mesh: Mesh) -> None:
        self.network, self.traffic, self.mesh = network, traffic, mesh
        self._known: dict[tuple[Any, ...], float] = {}

    def placement(self, attention: Order, expert: Order) -> Placement:
        seconds: dict[str, float] = {}
        for one in self.traffic:
            order = expert if one.axis in EXPERT[:3] or one.axis.startswith("routed") else attention
            spent = one.num_bytes / self._bandwidth(one.axis, one.pattern, order)
            seconds[one.axis] = seconds.get(one.axis, 0.0) + spent
        return Placement(attention, expert, seconds)

    def _bandwidth(self, axis: str, pattern: Pattern, order: Order) -> float:
        members = _GROUPS.get(axis, (axis,))
        axes = tuple((int(self.mesh.size(one)), _below(one, order, self.mesh)) for one in order if one in members)
        key = (axis if axis.endswith(("shard", "replica")) else "", axes, pattern)
        if key not in self._known:
            fabric = self._carrying[pattern == "all-to-all"]
            groups = self._split(axis, axis_members(self.network.shape.num_gpus, axes))
            self._known[key] = members_bandwidth(fabric, groups, pattern).bandwidth
        return self._known[key]

    @cached_property
    def _carrying(self) -> dict[bool, Any]:
        return {everywhere: self.network.carrying(everywhere) for everywhere in (False, True)}

    def _split(self, axis: str, groups: Ints) -> Ints:
        """Groups of all replicas, split into those that share state and those that hold the same share."""
        if not axis.endswith(("shard", "replica")):
            return groups
        kind = axis.partition("-")[0]
        shard = int(self.mesh.size(f"{kind}-shard"))
        parts = groups.reshape(len(groups), -1, shard)
        return (
            parts.reshape(-1, shard) if axis.endswith("shard") else parts.transpose(0, 2, 1).reshape(-1, parts.shape[1])
        )


_GROUPS = {
    "dense-shard": ("dp", "cp"),
    "dense-replica": ("dp", "cp"),
    "routed-shard": ("edp",),
    "routed-replica": ("edp",),
}
"""Axes that the groups of training state span."""


def axis_members(world: int, axes: tuple[tuple[int, int], ...]) -> Ints:
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
