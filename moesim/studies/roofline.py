"""Every operation of a step beside the rates of its GPU and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moesim.cost.blocks import Blocks, price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.pipeline import (
    boundary_time,
    gather_messages,
    gradient_messages,
    message_name,
    optimizer_time,
    optimizer_work,
    plan_graph,
)
from moesim.cost.plan import Plan
from moesim.cost.stage import PricedOp
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.studies.collectives import bus_factor
from moesim.studies.explain import bound, message_bytes, rank_ops
from moesim.workload.ops import ExpertLeg, Gemm, Message, Op, Work

CONVENTION = (
    "FLOP as executed, a multiply-add is 2; attention counts the causal half, its backward twice the forward; "
    "memory-bound kernels count none; recomputed operations are listed again; messages count the bytes that each rank "
    "puts on its links as nccl-tests do, the expert exchange every route: what goes once per node can exceed the link"
)
PEAKS = {"bf16": "bf16", "fp16": "fp16", "nvfp4": "fp4"}
"""Peak of the datasheet behind a kind of GEMM; every other one is FP8."""


@dataclass(frozen=True)
class Point:
    """One operation of the step.

    Attributes
    ----------
    where, name, family
        Kind of layer and pass; operation; breakdown category.
    stages
        Pipeline ranks that run it.
    calls
        Calls in a step, on the rank with the most. [-]
    flop, hbm_bytes, message_bytes, seconds
        Of one call; of a message, the payload.
    intensity
        FLOP per HBM byte; None without FLOP.
    rate
        FLOP/s; bytes/s of HBM where no FLOP are counted; of a message, bytes/s on the bus. [FLOP/s or B/s]
    roof, share_of_roof
        What the datasheet allows at that intensity, or of that link, and how much of it is reached.
    share_of_step
        Time of all calls over the step; what runs side by side counts twice. [-]
    bound
        What limits it.
    format
        Kind of operands of a matrix product; ``link`` of a message.
    """

    where: str
    name: str
    family: str
    stages: tuple[int, ...]
    calls: int
    flop: float
    hbm_bytes: float
    message_bytes: float
    seconds: float
    intensity: float | None
    rate: float
    roof: float
    share_of_roof: float
    share_of_step: float
    bound: str
    format: str


@dataclass(frozen=True)
class Roofline:
    """Operations of a step, most time first, and the roofs over them: FLOP/s by format, B/s by link."""

    name: str
    gpu: str
    step_time_s: float
    flop_roofs: dict[str, float]
    byte_roofs: dict[str, float]
    points: tuple[Point, ...]
    convention: str = CONVENTION

    def to_dict(self) -> dict[str, Any]:
        """Plain data in SI units, ready for JSON."""
        points = [dict(vars(point)) | {"stages": list(point.stages)} for point in self.points]
        return dict(vars(self)) | {"points": points}


def roofline(problem: Problem) -> Roofline:
    """Operations of the step of a problem's own strategy on the roofline of its GPU."""
    step_time = estimate(problem).step_time_s
    plan = problem.plan()
    flop_roofs, byte_roofs = _roofs(plan)
    blocks = price_blocks(plan)
    found: dict[tuple[str, str, float], PricedOp] = {}
    calls: dict[tuple[str, str, float], dict[int, int]] = {}
    for rank in range(int(plan.strategy.pp)):
        for where, priced, count in _ops(plan, blocks, rank):
            if float(priced.seconds):
                key = (where, priced.op.name, float(priced.seconds))
                found.setdefault(key, priced)
                on_ranks = calls.setdefault(key, {})
                on_ranks[rank] = on_ranks.get(rank, 0) + count
    points = (
        _point(plan, key[0], priced, calls[key], step_time, flop_roofs, byte_roofs) for key, priced in found.items()
    )
    ordered = sorted(points, key=lambda point: -point.share_of_step)
    used = {point.format for point in ordered}
    shown = {name: rate for name, rate in flop_roofs.items() if name in used or name == "bf16"}
    return Roofline(problem.name, plan.machine.gpu.name, step_time, shown, byte_roofs, tuple(ordered))


def _roofs(plan: Plan) -> tuple[dict[str, float], dict[str, float]]:
    """Rates of the datasheets, as the specs (or an override) give them. [FLOP/s, B/s]"""
    provenance = plan.machine.provenance
    flop = {
        name.removeprefix("gpu.peak_flop_rate."): float(sourced.value)
        for name, sourced in provenance.items()
        if name.startswith("gpu.peak_flop_rate.")
    }
    links = plan.machine.links
    nvlink = provenance.get("gpu.nvlink_bandwidth")
    bytes_ = {
        "hbm": float(plan.machine.gpu.memory_bandwidth),
        "nvlink": float(nvlink.value if nvlink else links.nvlink_bandwidth),
        "nic": float(links.nic_bandwidth),
    }
    return flop, {name: rate for name, rate in bytes_.items() if rate > 0}


def _ops(plan: Plan, blocks: Blocks, rank: int) -> list[tuple[str, PricedOp, int]]:
    """Operations of a rank, those of the end of the step and between stages among them."""
    found = list(rank_ops(plan, blocks, rank))
    update = Op("optimizer", "optimizer", optimizer_work(plan, rank))
    found.append(("step", PricedOp(update, optimizer_time(plan, rank), 0), 1))
    kinds = {kind for kind, _ in plan_graph(plan).rows}
    owners = plan.schedule.stage_rank(plan.strategy.pp, plan.strategy.vpp)
    for stage in (index for index, owner in enumerate(owners) if owner == rank):
        messages = gradient_messages(plan, plan.params[stage]) if "reduce" in kinds else ()
        messages += gather_messages(plan, plan.params[stage]) if "gather" in kinds else ()
        for work in messages:
            group = plan.machine.group(plan.mesh, work.axis)
            seconds = collective_time(work.collective, work.size, group, plan.machine.links)
            found.append(("step", PricedOp(Op(message_name(work), "dp", work), seconds, 0), 1))
        if stage + 1 < len(owners):
            payload = Message("send-recv", "pp", 2 * plan.setting.local_tokens * plan.model.hidden)
            sent = PricedOp(Op("stage boundary", "pp", payload), boundary_time(plan, stage), 0)
            found.append(("stage", sent, 2 * plan.num_micro_batches))
    return found


def _point(
    plan: Plan,
    where: str,
    priced: PricedOp,
    calls: dict[int, int],
    step_time: float,
    flop_roofs: dict[str, float],
    byte_roofs: dict[str, float],
) -> Point:
    work, seconds = priced.op.work, float(priced.seconds)
    flop, moved, message = float(work.flop), float(work.hbm_bytes), message_bytes(work)
    intensity = flop / moved if flop and moved else None
    limit, kind = bound(plan, priced), ""
    if message:
        kind, roof = limit, byte_roofs[limit]
        rate = message * _on_the_bus(plan, work) / seconds
    elif intensity is None:
        kind, rate, roof = "hbm", moved / seconds, byte_roofs["hbm"]
    else:
        kind = PEAKS.get(work.rate, "fp8") if isinstance(work, Gemm) else "bf16"
        rate, roof = flop / seconds, min(flop_roofs[kind], intensity * byte_roofs["hbm"])
    return Point(
        where,
        priced.op.name,
        priced.op.category,
        tuple(calls),
        max(calls.values()),
        flop,
        moved,
        message,
        seconds,
        intensity,
        rate,
        roof,
        rate / roof,
        seconds * max(calls.values()) / step_time,
        limit,
        kind,
    )


def _on_the_bus(plan: Plan, work: Work) -> float:
    """Bytes that each rank must put on its links over the payload, as nccl-tests counts them. [-]"""
    if isinstance(work, Message) and work.collective != "send-recv":
        return bus_factor(work.collective, plan.machine.group(plan.mesh, work.axis))
    return bus_factor("all-to-all", plan.machine.group(plan.mesh, "ep")) if isinstance(work, ExpertLeg) else 1.0
