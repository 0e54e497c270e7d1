"""What the groups of a run get of its fabric: ranks, tiers, bandwidth, contention and bytes of every axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.cost.blocks import Blocks, chunk_blocks, price_blocks
from moesim.cost.from_spec import specs_network
from moesim.cost.plan import Plan
from moesim.fabric.layout import Pattern
from moesim.fabric.network import Network
from moesim.fabric.reach import crowded
from moesim.fabric.tiers import GroupBandwidth, group_bandwidth
from moesim.problem import Problem
from moesim.spec.load import load_specs
from moesim.workload.ops import ExpertLeg, Message


@dataclass(frozen=True)
class AxisTraffic:
    """Bytes that a rank sends along one axis in a step, by pattern. [B]"""

    axis: str
    pattern: Pattern
    num_bytes: float


@dataclass(frozen=True)
class GroupRow:
    """One axis with one pattern of traffic.

    ``ranks`` of a group, ``stride`` apart; ``crossed`` tiers; ``bandwidth`` of each rank while the sibling groups run
    too [B/s], ``contention`` what they cost, ``binding`` the links that limit it; ``tier_bytes``: what a rank puts on
    the links into each tier in a step [B]; ``seconds``: bytes over bandwidth [s].
    """

    axis: str
    pattern: Pattern
    ranks: int
    stride: int
    crossed: tuple[str, ...]
    bandwidth: float
    contention: float
    binding: str
    num_bytes: float
    tier_bytes: dict[str, float]

    @property
    def seconds(self) -> float:
        """Bytes of the step at the bandwidth. [s]"""
        return self.num_bytes / self.bandwidth

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "axis": self.axis,
            "pattern": self.pattern,
            "ranks": self.ranks,
            "stride": self.stride,
            "tiers": list(self.crossed),
            "bandwidth_bytes_per_s": self.bandwidth,
            "contention": self.contention,
            "binding": self.binding,
            "step_bytes": self.num_bytes,
            "tier_bytes": self.tier_bytes,
            "step_s": self.seconds,
        }


@dataclass(frozen=True)
class FabricGroups(Shown):
    """The groups of a run on its fabric."""

    name: str
    fabric: str
    num_gpus: int
    rows: tuple[GroupRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        rows = [row.to_dict() for row in self.rows]
        return {"name": self.name, "fabric": self.fabric, "num_gpus": self.num_gpus, "groups": rows}


def fabric_groups(problem: Problem) -> FabricGroups:
    """Look at every axis with more than one rank, on the pipeline rank that sends the most."""
    plan = problem.plan()
    joined, fabric = problem_network(problem)
    mesh = plan.mesh
    rows = []
    for traffic in axis_traffic(plan):
        size, stride = int(mesh.size(traffic.axis)), int(mesh.stride(traffic.axis))
        busy = traffic.pattern == "all-to-all" and crowded(size, float(plan.group(traffic.axis).per_node))
        found = group_bandwidth(joined.carrying(busy), size, stride, traffic.pattern)
        rows.append(_row(traffic, size, stride, found, problem.machine.num_gpus))
    return FabricGroups(problem.name, fabric, problem.machine.num_gpus, tuple(rows))


def problem_network(problem: Problem) -> tuple[Network, str]:
    """The fabric of a problem and its name."""
    specs = load_specs(problem.scenario)
    return specs_network(specs), specs.fabric.name


def _row(traffic: AxisTraffic, size: int, stride: int, found: GroupBandwidth, num_gpus: int) -> GroupRow:
    tiers: dict[str, float] = {}
    for load in found.loads.values():
        if load.total:
            tiers[load.tier] = tiers.get(load.tier, 0.0) + load.total / load.crossings / num_gpus * traffic.num_bytes
    return GroupRow(
        traffic.axis,
        traffic.pattern,
        size,
        stride,
        found.crossed,
        found.bandwidth,
        found.contention,
        found.binding,
        traffic.num_bytes,
        tiers,
    )


def axis_traffic(plan: Plan) -> list[AxisTraffic]:
    """Bytes that each rank sends along each axis in a step, on the pipeline rank that sends the most of all.

    A ring moves ``(n - 1) / n`` of a gathered or scattered buffer past each rank, twice that of a summed one.
    """
    if plan.shape:
        raise SpecError.single("", "", "a batch of strategies has no single set of groups", "ask about one")
    blocks = price_blocks(plan)
    owners = plan.stage_rank
    most: dict[tuple[str, Pattern], float] = {}
    for rank in range(plan.strategy.pp):
        sums: dict[tuple[str, Pattern], float] = {}
        for stage, owner in enumerate(owners):
            if owner == rank:
                for axis, pattern, num_bytes in _stage(plan, blocks, stage):
                    sums[axis, pattern] = sums.get((axis, pattern), 0.0) + num_bytes
        if sum(sums.values()) > sum(most.values()):
            most = sums
    return [AxisTraffic(axis, pattern, value) for (axis, pattern), value in most.items() if value]


def _stage(plan: Plan, blocks: Blocks, stage: int) -> Iterator[tuple[str, Pattern, float]]:
    mesh, times = plan.mesh, plan.num_micro_batches
    for block in chunk_blocks(plan, plan.stages[stage], blocks):
        for priced in block.forward + block.backward:
            work = priced.op.work
            if isinstance(work, Message):
                pattern, moved = sent(work.collective, float(work.size), float(mesh.size(work.axis)))
                yield work.axis, pattern, moved * times
            elif isinstance(work, ExpertLeg) and float(mesh.ep) > 1:
                rows = float(work.tokens * work.top_k * work.row_bytes)
                yield "ep", "all-to-all", rows * (1 - 1 / float(mesh.ep)) * times
    if plan.strategy.pp > 1:
        owners = plan.stage_rank
        sides = [other for other in (stage - 1, stage + 1) if 0 <= other < len(owners)]
        sends = sum(owners[other] != owners[stage] for other in sides)
        yield "pp", "ring", float(sends * 2 * plan.setting.local_tokens * plan.model.hidden * times)
    yield from _state(plan, stage)


def _state(plan: Plan, stage: int) -> Iterator[tuple[str, Pattern, float]]:
    """Gradients and weights of a stage, once a step."""
    types, params, sharding = plan.state_types, plan.params[stage], plan.sharding
    counts = {"dense": float(params.dense), "routed": float(params.routed)}
    for kind, count in counts.items():
        shard = f"{kind}-shard"
        ranks = float(plan.mesh.size(shard))
        if sharding.inside_node:
            across = float(plan.mesh.size(f"{kind}-replica"))
            yield f"{kind}-replica", *sent("all-reduce", types.grad * count / ranks, across)
        if sharding.per_micro_batch:
            continue
        yield shard, *sent(plan.reduction, types.grad * count, ranks)
        if sharding.optimizer and not sharding.weights:
            yield shard, *sent("all-gather", types.param * count, ranks)


def sent(collective: str, size: float, ranks: float) -> tuple[Pattern, float]:
    """Pattern of a collective, and the bytes that each rank sends. [B]"""
    share = (ranks - 1) / ranks
    match collective:
        case "all-reduce":
            return "ring", 2 * share * size
        case "all-to-all":
            return "all-to-all", share * size
        case "send-recv":
            return "ring", size if ranks > 1 else 0.0
    return "ring", share * size
