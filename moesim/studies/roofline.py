"""Every operation of a step beside the rates of its GPU and links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moesim.base.display import Shown
from moesim.cost.blocks import Blocks, price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.gemm import gemm_time
from moesim.cost.machine import Group
from moesim.cost.pipeline import boundary_time, plan_graph
from moesim.cost.plan import Plan
from moesim.cost.replication import gather_messages, message_name, stage_messages
from moesim.cost.stage import PricedOp
from moesim.cost.update import optimizer_work, orthogonalise_products, traffic_part
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.studies.collectives import bus_factor
from moesim.studies.explain import bound, message_bytes, rank_ops
from moesim.workload.ops import ExpertLeg, FusedExperts, Gemm, Message, Op

CONVENTION = (
    "FLOP as executed, a multiply-add is 2; attention counts the causal half, its backward twice the forward; "
    "memory-bound kernels count none; recomputed operations are listed again; messages count the bytes that each rank "
    "puts on its links as nccl-tests do, the expert exchange every route: what goes once per node can exceed the link, "
    "as what stays in the L2 can exceed the HBM; across nodes a ring has the NICs of all its ranks in a node"
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
class Roofline(Shown):
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
    found: dict[tuple[str, str, float], Call] = {}
    counts: dict[tuple[str, str, float], dict[int, int]] = {}
    for rank in range(int(plan.strategy.pp)):
        for call in step_calls(plan, blocks, rank):
            seconds = float(call.priced.seconds)
            if seconds:
                key = (call.where, call.priced.op.name, seconds)
                found.setdefault(key, call)
                on_ranks = counts.setdefault(key, {})
                on_ranks[rank] = on_ranks.get(rank, 0) + call.count
    points = (_point(plan, call, counts[key], step_time, (flop_roofs, byte_roofs)) for key, call in found.items())
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


@dataclass(frozen=True)
class Call:
    """An operation, where it is, how often a rank calls it, and the ranks of a message."""

    where: str
    priced: PricedOp
    count: int
    group: Group | None = None


def step_calls(plan: Plan, blocks: Blocks, rank: int) -> Iterator[Call]:
    """Operations of a rank, those of the end of the step and between stages among them."""
    for where, priced, count in rank_ops(plan, blocks, rank):
        work = priced.op.work
        axis = work.axis if isinstance(work, Message) else "ep" if isinstance(work, ExpertLeg) else None
        yield Call(where, priced, count, None if axis is None else plan.machine.group(plan.mesh, axis))
    update = Op("optimizer", "optimizer", optimizer_work(plan, rank))
    yield Call("step", PricedOp(update, traffic_part(plan, rank), 0), 1)
    for product, times in orthogonalise_products(plan, rank):
        seconds = gemm_time(product, plan.machine.gpu)
        yield Call("step", PricedOp(Op("newton-schulz", "gemm", product), seconds, 0), max(round(float(times)), 1))
    kinds = {kind for kind, _ in plan_graph(plan).rows}
    owners = plan.stage_rank
    for stage in (index for index, owner in enumerate(owners) if owner == rank):
        messages = stage_messages(plan, stage) if "reduce" in kinds else ()
        messages += gather_messages(plan, plan.trained[stage]) if "gather" in kinds else ()
        for work in messages:
            group = plan.machine.group(plan.mesh, work.axis)
            seconds = collective_time(work.collective, work.size, group, plan.machine.links)
            yield Call("step", PricedOp(Op(message_name(work), "dp", work), seconds, 0), 1, group)
        if stage + 1 < len(owners):
            payload = Message("send-recv", "pp", 2 * plan.setting.local_tokens * plan.model.hidden)
            pair = Group(2.0, 2.0 - float(plan.boundary_crosses_nodes(stage)), plan.stage_ring.reach)
            sent = PricedOp(Op("stage boundary", "pp", payload), boundary_time(plan, stage), 0)
            yield Call("stage", sent, 2 * plan.num_micro_batches, pair)


def _point(
    plan: Plan,
    call: Call,
    calls: dict[int, int],
    step_time: float,
    roofs: tuple[dict[str, float], dict[str, float]],
) -> Point:
    priced, (flop_roofs, byte_roofs) = call.priced, roofs
    work, seconds = priced.op.work, float(priced.seconds)
    flop, moved, message = float(work.flop), float(work.hbm_bytes), message_bytes(work)
    intensity = flop / moved if flop and moved else None
    limit, kind = bound(plan, priced), ""
    if message:
        kind, factor, roof = _on_the_link(call, byte_roofs)
        rate, limit = message * factor / seconds, kind
    elif intensity is None:
        kind, rate, roof = "hbm", moved / seconds, byte_roofs["hbm"]
    else:
        kind = PEAKS.get(work.rate, "fp8") if isinstance(work, Gemm | FusedExperts) else "bf16"
        rate, roof = flop / seconds, min(flop_roofs[kind], intensity * byte_roofs["hbm"])
    return Point(
        call.where,
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


def _on_the_link(call: Call, byte_roofs: dict[str, float]) -> tuple[str, float, float]:
    """Link of a message; bytes that each rank puts on it over the payload; and what it allows. [-, B/s]

    Across nodes a ring passes every node by all NICs of the ranks that it has there, so the bus of a rank can be that many
    times as fast as its NIC; an all-to-all keeps a part inside the node.
    """
    work, group = call.priced.op.work, call.group
    if group is None:
        return "hbm", 1.0, byte_roofs["hbm"]
    name = work.collective if isinstance(work, Message) else "all-to-all"
    factor = bus_factor(name, group)
    if float(group.nodes) <= 1:
        return "nvlink", factor, byte_roofs["nvlink"]
    inside = float(group.per_node)
    gain = float(group.size - 1) / float(group.size - inside) if name == "all-to-all" else inside
    return "nic", factor, max(byte_roofs["nic"], min(byte_roofs["nic"] * gain, byte_roofs["nvlink"]))
