"""What kernels take: experts at their rate, all products of the model, repeated ones, casts."""

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.price import op_time
from moesim.cost.stage import PricedOp
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.bottlenecks.layout import multiplied_rows, real_share
from moesim.matrix.bottlenecks.waiting import stretched_seconds
from moesim.matrix.case import AGAIN, Case, Terms
from moesim.workload.accumulation import SUMMED
from moesim.workload.fusions.permute import PASSES
from moesim.workload.ops import AttentionCore, FusedExperts, Gemm, Op, Traffic

SOURCE = "olmo-core-report"
KERNELS = ("gemm", "grouped_gemm", "attention", "memory_bound")


def _is_cast(op: Op) -> bool:
    return isinstance(op.work, Traffic) and op.work.cast


def _model_flop(case: Case) -> Numeric:
    """Useful FLOPs of a rank in a step, without repeated ones. [FLOP]"""
    plan = case.plan
    tokens = plan.strategy.micro_batch * plan.sequence_length * plan.num_micro_batches * plan.mesh.dp
    return plan.flop_per_token * tokens / plan.machine.num_gpus


def small_products(case: Case) -> Terms:
    """Seconds of the products of experts, with the casts of their operands, over those at the BF16 peak. [-]"""
    seconds: Numeric = 0.0
    casts: Numeric = 0.0
    flop: Numeric = 0.0
    share = real_share(case)
    for priced, times in case.ops():
        op = priced.op
        if op.name.endswith(AGAIN):
            continue
        if isinstance(op.work, FusedExperts):
            seconds, flop = seconds + times * priced.seconds, flop + times * op.work.flop
        elif op.category == "grouped_gemm" and isinstance(op.work, Gemm):
            seconds, flop = (
                seconds + times * _written_seconds(case, priced, op.work),
                flop + times * op.work.flop * share,
            )
        elif _is_cast(op) and op.name.startswith("expert"):
            casts = casts + times * priced.seconds
    ideal = np.maximum(flop / case.plan.machine.gpu.bf16_flop_rate, 1e-30)
    return {"products": multiplied_rows(case) * seconds / ideal, "casts of their operands": casts / ideal}


def _written_seconds(case: Case, priced: PricedOp, work: Gemm) -> Numeric:
    """Seconds of a product whose result is written, whether or not it is summed into a buffer of gradients. [s]"""
    if not work.accumulate:
        return priced.seconds
    plan = case.plan

    def written() -> Numeric:
        return op_time(
            replace(priced.op, work=replace(work, accumulate=False)), plan.mesh, plan.machine, plan.transport
        )

    return case.step.shared.once("written", (priced.op.category, work), written)


def model_kernels(case: Case) -> Terms:
    """Seconds of the model's kernels for a useful FLOP at the BF16 peak. [-]

    Passes and casts have rows of their own; sums of gradients are work on training state.
    """
    found: dict[str, Numeric] = {}
    multiplied = multiplied_rows(case)
    for priced, times in case.ops():
        op = priced.op
        if op.category not in KERNELS or _is_cast(op) or op.name.startswith(PASSES) or op.name.endswith(SUMMED):
            continue
        name = "repeated" if op.name.endswith(AGAIN) else op.category
        rows = multiplied if op.category == "grouped_gemm" else 1.0
        found[name] = found.get(name, 0.0) + times * rows * priced.seconds
    found |= case.read(stretched_seconds)  # lost beside messages and copies, by their class
    ideal = _model_flop(case) / case.plan.machine.gpu.bf16_flop_rate
    return {name: seconds / ideal for name, seconds in found.items()}


def recompute_flop(case: Case) -> Terms:
    """FLOPs that are done again before the backward. [FLOP]"""
    found: dict[str, Numeric] = {}
    for priced, times in case.ops():
        if priced.op.name.endswith(AGAIN) and isinstance(priced.op.work, Gemm | AttentionCore | FusedExperts):
            found[priced.op.category] = found.get(priced.op.category, 0.0) + times * priced.op.work.flop
    return found


def quantization(case: Case) -> Terms:
    """Seconds of casts, and of scales that a pass of its own brings into the order of a kernel. [s]"""
    casts: Numeric = sum((n * priced.seconds for priced, n in case.ops() if _is_cast(priced.op)), 0.0)
    return {"casts": casts}


bottlenecks.add(
    "small-gemms",
    Bottleneck("Small/irregular expert GEMMs", "compute", "-", small_products, 14, routing="any"),
    summary="Time of the experts' products, casts of their operands included, over the time at the BF16 peak.",
    source=SOURCE,
)
bottlenecks.add(
    "compute-throughput",
    Bottleneck("Model compute throughput", "compute", "-", model_kernels, 15, by_class=True, routing="any"),
    summary="Time of the model's kernels for its useful FLOPs, repeated and slowed ones included, over that at the peak.",
    source=SOURCE,
)
bottlenecks.add(
    "recompute-flop",
    Bottleneck("Additional recompute FLOPs", "compute", "-", recompute_flop, 16),
    summary="FLOPs that are done a second time before the backward.",
    source=SOURCE,
)
bottlenecks.add(
    "quantization",
    Bottleneck("Quantization/swizzle overhead", "compute", "s", quantization, 17, priced=True),
    summary="Time of kernels that cast values or rearrange their scales.",
    source=SOURCE,
)
