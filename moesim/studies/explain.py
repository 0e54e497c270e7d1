"""What an estimate is made of: every operation with its price, memory by class and phase, the constants that matter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moesim.base.display import Shown
from moesim.base.numeric import first
from moesim.cost.blocks import Blocks, Name, chunk_blocks, price_blocks
from moesim.cost.chunk_graph import LANES
from moesim.cost.memory import rank_memory
from moesim.cost.plan import Plan
from moesim.cost.stage import PricedOp
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.timeline.walk import last_rank
from moesim.workload.model import LatentAttention
from moesim.workload.ops import ExpertLeg, FusedExperts, Gemm, Message, Traffic, Work


@dataclass(frozen=True)
class OpRow:
    """One operation on the rank that finishes last.

    ``flop``, ``hbm_bytes``, ``message_bytes`` and ``seconds`` are per call; ``calls`` per step; ``bound`` is what
    limits it; ``where`` the kind of layer (w: window, c: chunk of its attention) or the end of the model, and the pass.
    """

    where: str
    name: str
    lane: str
    category: str
    flop: float
    hbm_bytes: float
    message_bytes: float
    seconds: float
    host_s: float
    calls: int
    bound: str


@dataclass(frozen=True)
class Explanation(Shown):
    """An estimate, the operations behind it, and each rank's memory by phase and class. [B]"""

    estimate: Estimate
    rank: int
    ops: tuple[OpRow, ...]
    memory: tuple[dict[str, dict[str, float]], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "estimate": self.estimate.to_dict(),
            "rank": self.rank,
            "ops": [dict(vars(row)) for row in self.ops],
            "memory_phases": [
                {phase: {f"{name}_bytes": value for name, value in classes.items()} for phase, classes in rank.items()}
                for rank in self.memory
            ],
            "constants": [dict(vars(constant)) for constant in self.estimate.constants],
        }


def explain(problem: Problem, measured_s: float | None = None) -> Explanation:
    """Explain the estimate of a problem's own strategy, beside a measured step where there is one. [s]"""
    answer = estimate(problem, measured_s=measured_s)
    plan = problem.plan()
    blocks = price_blocks(plan)
    rank = last_rank(answer.timeline.graph, answer.timeline.run)
    memory = tuple(
        {phase: {name: float(value) for name, value in classes.items()} for phase, classes in one.phases.items()}
        for one in rank_memory(plan, blocks)
    )
    return Explanation(answer, rank, tuple(_row(plan, *one) for one in rank_ops(plan, blocks, rank)), memory)


def rank_ops(plan: Plan, blocks: Blocks, rank: int) -> Iterator[tuple[str, PricedOp, int]]:
    """Operations of a pipeline rank: where each is, its price, and how often it is called in a step.

    Where halves of a micro-batch overlap, those of a half, twice as often.
    """
    owners = plan.stage_rank
    uses: dict[int, int] = {}
    times = plan.num_micro_batches // plan.schedule.pipelines
    if plan.strategy.two_batch_overlap:
        blocks, times = price_blocks(plan.half), 2 * times
    for stage, owner in zip(plan.stages, owners, strict=True):
        if owner == rank:
            for block in chunk_blocks(plan, stage, blocks):
                uses[id(block)] = uses.get(id(block), 0) + times
    for name, block in blocks.items():
        for word, ops in (("fwd", block.forward), ("bwd", block.backward)):
            if id(block) in uses:
                yield from ((f"{_label(name)} {word}", op, uses[id(block)]) for op in ops)


def _label(name: Name) -> str:
    if isinstance(name, str):
        return name
    layer, repeated, in_bf16 = name
    attention = layer.attention
    kind = "MLA " if isinstance(attention, LatentAttention) else ""
    span = f" w{attention.window}" if attention.window else f" c{attention.chunk}" if attention.chunk else ""
    return f"{kind}{'moe' if layer.moe else 'dense'}{span}{'' if repeated else ' kept'}{' bf16' if in_bf16 else ''}"


def _row(plan: Plan, where: str, priced: PricedOp, calls: int) -> OpRow:
    work = priced.op.work
    return OpRow(
        where=where,
        name=priced.op.name,
        lane=LANES[priced.lane],
        category=priced.op.category,
        flop=float(work.flop),
        hbm_bytes=float(work.hbm_bytes),
        message_bytes=message_bytes(work),
        seconds=float(priced.seconds),
        host_s=float(priced.launch),
        calls=calls,
        bound=bound(plan, priced),
    )


def message_bytes(work: Work) -> float:
    """Payload of a message or an expert leg, 0 for a kernel. [B]"""
    if isinstance(work, Message):
        return float(work.size)
    return float(work.busy_tokens * work.top_k * work.row_bytes) if isinstance(work, ExpertLeg) else 0.0


def bound(plan: Plan, priced: PricedOp) -> str:
    """What limits an operation: the larger of its two roofline times, its link, or the fixed time of a kernel."""
    work, gpu = priced.op.work, plan.machine.gpu
    if first(priced.seconds) == 0:
        return "nothing"
    if isinstance(work, Message | ExpertLeg):
        axis = work.axis if isinstance(work, Message) else "ep"
        return "nic" if plan.machine.group(plan.mesh, axis).nodes > 1 else "nvlink"
    memory = work.hbm_bytes / gpu.memory_bandwidth
    if isinstance(work, Traffic):
        return "hbm" if memory * work.slowdown * 2 > priced.seconds else "kernel start"
    rate = gpu.rates[work.rate] if isinstance(work, Gemm | FusedExperts) else gpu.rates["bf16"]
    compute = work.flop / rate
    if max(compute, memory) * 5 < priced.seconds:
        return "kernel start"
    return "tensor-cores" if compute > memory else "hbm"
