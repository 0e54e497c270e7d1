"""The order of the parallel axes on the ranks: what each order makes of the step, and the best one.

Ranks are numbered with the first axis of an order innermost. Attention and expert layers have orders of their own; both
have to put the same ranks into a pipeline stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

from moesim.fabric.layout import Pattern
from moesim.fabric.network import Network
from moesim.fabric.reach import crowded
from moesim.fabric.tiers import members_bandwidth
from moesim.problem import Problem
from moesim.studies.fabric_groups import AxisTraffic, axis_traffic, problem_network
from moesim.studies.placed_groups import (
    Order,
    below,
    group_members,
    neighbours,
    order_of,
    spans,
    step_times_of,
)
from moesim.workload.mesh import Mesh

ATTENTION = ("tp", "cp", "dp", "pp")
EXPERT = ("etp", "ep", "edp", "pp")
"""Axes of the two meshes in their usual order, the innermost first."""


@dataclass(frozen=True)
class Placement:
    """One pair of orders.

    ``step_s``: the step that it gives [s]; ``seconds`` by axis, bytes over bandwidth: where the traffic goes [s];
    ``experts_per_domain``: ranks of an expert group that share an NVLink domain. [-]
    """

    attention: Order
    expert: Order
    step_s: float
    seconds: dict[str, float]
    experts_per_domain: int

    @property
    def total(self) -> float:
        """Seconds of the traffic of all axes, one after the other. [s]"""
        return sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "attention_order": "-".join(self.attention),
            "expert_order": "-".join(self.expert),
            "step_time_s": self.step_s,
            "traffic_s": self.total,
            "traffic_s_by_axis": self.seconds,
            "experts_per_domain": self.experts_per_domain,
        }


@dataclass(frozen=True)
class Placements:
    """All legal orders, the fastest step first, and the usual one."""

    name: str
    fabric: str
    usual: Placement
    ranked: tuple[Placement, ...]

    @property
    def best(self) -> Placement:
        """The order with the fastest step; the usual one where none is faster."""
        return self.ranked[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "name": self.name,
            "fabric": self.fabric,
            "orders": len(self.ranked),
            "usual": self.usual.to_dict(),
            "best": self.best.to_dict(),
            "saved_s": self.usual.step_s - self.best.step_s,
            "worst_over_best": self.ranked[-1].step_s / self.best.step_s,
            "ranked": [placement.to_dict() for placement in self.ranked],
        }


def placements(problem: Problem) -> Placements:
    """Price the step under every legal order of the axes.

    All orders are columns of one evaluation, with the prices of any step; orders whose steps are alike follow each
    other by the seconds of their traffic.
    """
    plan = problem.plan()
    joined, fabric = problem_network(problem)
    mesh = plan.mesh
    traffic = _Traffic(joined, axis_traffic(plan), mesh)
    orders = legal_orders(mesh)
    steps = step_times_of(plan, orders).tolist()
    found = [
        Placement(*pair, step, traffic.seconds(pair), traffic.experts_per_domain(pair))
        for pair, step in zip(orders, steps, strict=True)
    ]
    ranked = sorted(found, key=lambda one: (round(one.step_s / steps[0], 9), one.total, one is not found[0]))
    return Placements(problem.name, fabric, found[0], tuple(ranked))


def legal_orders(mesh: Mesh) -> list[tuple[Order, Order]]:
    """Pairs of orders in which both meshes put the same ranks into a pipeline stage, the usual pair first.

    Expert groups may also be split: so many neighbours, and the rest of the group further out (``ep.8`` and ``ep.x4``),
    as where only a few ranks of each node work together.
    """
    usual = _used(ATTENTION, mesh), _used(EXPERT, mesh)
    experts = [order for axes in _split(usual[1], mesh) for order in permutations(axes) if _inner_first(order)]
    others = (
        (attention, expert)
        for attention in permutations(usual[0])
        for expert in experts
        if below("pp", attention, mesh) == below("pp", expert, mesh)
    )
    return list(dict.fromkeys([usual, *others]))


def _split(axes: Order, mesh: Mesh) -> Iterator[Order]:
    """The axes as they are, and with the expert axis in two parts, where another one may come between them."""
    yield axes
    count = int(mesh.size("ep"))
    if "ep" in axes and len(axes) > 1:
        others = tuple(axis for axis in axes if axis != "ep")
        yield from (
            (f"ep.{inner}", f"ep.x{count // inner}", *others)
            for inner in range(2, count // 2 + 1)
            if count % inner == 0
        )


def _inner_first(order: Order) -> bool:
    """Whether a split axis has something between its parts, the inner one first; else it is a whole one."""
    parts = [place for place, axis in enumerate(order) if "." in axis]
    return not parts or (parts[1] > parts[0] + 1 and not order[parts[0]].startswith("ep.x"))


def _used(axes: Order, mesh: Mesh) -> Order:
    """Axes with more than one rank; an axis of one rank has no place."""
    return tuple(axis for axis in axes if int(mesh.size(axis)) > 1)


class _Traffic:
    """Seconds of the traffic under an order; groups that look alike are worked out once."""

    def __init__(self, network: Network, traffic: list[AxisTraffic], mesh: Mesh) -> None:
        self.network, self.traffic, self.mesh = network, traffic, mesh
        self._known: dict[tuple[Any, ...], float] = {}

    def seconds(self, orders: tuple[Order, Order]) -> dict[str, float]:
        """Bytes over bandwidth, by axis. [s]"""
        seconds: dict[str, float] = {}
        for one in self.traffic:
            spent = one.num_bytes / self._bandwidth(one.axis, one.pattern, order_of(one.axis, orders))
            seconds[one.axis] = seconds.get(one.axis, 0.0) + spent
        return seconds

    def experts_per_domain(self, orders: tuple[Order, Order]) -> int:
        """Ranks of an expert group in an NVLink domain. [-]"""
        along, shape = spans("ep", orders[1], self.mesh), self.network.shape
        return neighbours(group_members("ep", along, self.mesh, shape.num_gpus), shape.nvlink_domain)

    def _bandwidth(self, axis: str, pattern: Pattern, order: Order) -> float:
        along = spans(axis, order, self.mesh)
        key = (axis if axis.endswith(("shard", "replica")) else "", along, pattern)
        if key not in self._known:
            groups = group_members(axis, along, self.mesh, self.network.shape.num_gpus)
            busy = pattern == "all-to-all" and crowded(
                groups.shape[1], neighbours(groups, self.network.shape.nvlink_domain)
            )
            self._known[key] = members_bandwidth(self._carrying[busy], groups, pattern).bandwidth
        return self._known[key]

    @cached_property
    def _carrying(self) -> dict[bool, Any]:
        return {everywhere: self.network.carrying(everywhere) for everywhere in (False, True)}
