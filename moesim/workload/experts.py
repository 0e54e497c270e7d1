"""The expert half of a decoder layer: norm, router, dispatch, grouped expert GEMMs, combine, residual.

Tokens reach the router split over the tensor-parallel group (sequence parallelism), so each rank routes its own
``b s / (cp tp)`` tokens. Routing is balanced: every rank receives as many rows as it sends.
"""

from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.batch import MicroBatch
from moesim.workload.model import Moe
from moesim.workload.ops import Block, ExpertLeg, Gemm, Message, Op, Saved, Traffic

LAYERNORM = frozenset({"layernorm", "full"})
MOE = frozenset({"moe", "full"})
ACTIVATION = frozenset({"moe_act", "moe", "full"})
FULL = frozenset({"full"})


@dataclass(frozen=True)
class LayoutPasses:
    """HBM passes that an expert transport makes around its legs, in token copies.

    One copy reads or writes ``local_tokens x hidden`` values. ``before_dispatch`` and ``after_dispatch`` bring rows
    into wire order and into expert order; the combine side reverses them. ``host_syncs`` counts the times per dispatch
    that the host waits for the row counts.
    """

    before_dispatch: Numeric
    after_dispatch: Numeric
    before_combine: Numeric
    after_combine: Numeric
    host_syncs: int = 0


def expert_rows(moe: Moe, batch: MicroBatch) -> Numeric:
    """Token rows that the local experts of one rank process, balanced. [-]"""
    return batch.local_tokens * moe.top_k * batch.mesh.etp


def expert_block(moe: Moe, hidden: int, batch: MicroBatch, passes: LayoutPasses) -> Block:
    """Operations and saved tensors of one routed-expert block. Counts per rank and micro-batch."""
    mesh, local = batch.mesh, batch.local_tokens
    rows = expert_rows(moe, batch)
    experts = moe.num_experts / mesh.ep
    rows_per_expert = rows / experts
    inter = moe.ffn_size / mesh.etp
    up = (2 if moe.gated else 1) * inter
    copy = 2 * local * hidden
    gates = local * moe.num_experts

    def leg(direction: str, name: str) -> Op:
        counts = name == "dispatch"
        work = ExpertLeg(direction, local, moe.top_k, moe.num_experts, 2 * hidden, counts)
        sync = counts and passes.host_syncs > 0
        segment = "dispatch" if name.startswith("dispatch") else "combine"
        return Op(name, "ep", work, kernels=3, segment=segment, modules=MOE, host_sync=sync)

    def layout(name: str, copies: Numeric, segment: str) -> Op:
        kernels = np.where(np.asarray(copies) > 0, 2.0, 0.0)  # nothing to move, nothing to launch
        return Op(name, "memory_bound", Traffic(copies * copy), kernels=kernels, segment=segment, modules=MOE)

    def etp(name: str, collective: str) -> Op:
        size = 2 * hidden * rows
        return Op(name, "tp", Message(collective, "etp", size), kernels=1, segment="experts", modules=MOE)

    def grouped(name: str, m: Numeric, n: Numeric, k: Numeric, accumulate: bool = False) -> Op:
        work = Gemm(m, n, k, groups=experts, accumulate=accumulate)
        return Op(name, "grouped_gemm", work, segment="experts", modules=MOE)

    def activation(name: str, num_bytes: Numeric, kernels: int) -> Op:
        return Op(name, "memory_bound", Traffic(num_bytes), kernels, "experts", ACTIVATION)

    forward = (
        Op("expert-norm", "memory_bound", Traffic(2 * copy), modules=LAYERNORM),
        Op("router", "gemm", Gemm(local, moe.num_experts, hidden), modules=MOE),
        Op("router-top-k", "memory_bound", Traffic(24 * gates), kernels=10, modules=MOE),
        layout("permute", passes.before_dispatch, "attention"),
        leg("dispatch", "dispatch"),
        layout("sort-by-expert", passes.after_dispatch, "experts"),
        etp("expert-all-gather", "all-gather"),
        grouped("expert-up", rows_per_expert, up, hidden),
        activation("expert-activation", 2 * rows * (up + inter), kernels=2),
        grouped("expert-down", rows_per_expert, hidden, inter),
        etp("expert-reduce-scatter", "reduce-scatter"),
        layout("unsort", passes.before_combine, "experts"),
        leg("combine", "combine"),
        layout("unpermute", passes.after_combine, "combine"),
        Op("expert-residual", "memory_bound", Traffic(3 * copy), segment="combine", modules=FULL),
    )
    backward = (
        Op("expert-residual-dgrad", "memory_bound", Traffic(2 * copy), segment="combine"),
        layout("unpermute-backward", passes.after_combine, "combine"),
        leg("dispatch", "combine-backward"),
        layout("unsort-backward", passes.before_combine, "experts"),
        etp("expert-grad-all-gather", "all-gather"),
        grouped("expert-down-dgrad", rows_per_expert, inter, hidden),
        grouped("expert-down-wgrad", inter, hidden, rows_per_expert, accumulate=True),
        activation("expert-activation-backward", 2 * rows * (2 * up + inter), kernels=2),
        grouped("expert-up-dgrad", rows_per_expert, hidden, up),
        grouped("expert-up-wgrad", hidden, up, rows_per_expert, accumulate=True),
        etp("expert-grad-reduce-scatter", "reduce-scatter"),
        layout("sort-by-expert-backward", passes.after_dispatch, "experts"),
        leg("combine", "dispatch-backward"),
        layout("permute-backward", passes.before_dispatch, "attention"),
        Op("router-top-k-backward", "memory_bound", Traffic(24 * gates), kernels=8),
        Op("router-dgrad", "gemm", Gemm(local, hidden, moe.num_experts)),
        Op("router-wgrad", "gemm", Gemm(hidden, moe.num_experts, local, accumulate=True)),
        Op("expert-norm-backward", "memory_bound", Traffic(4 * copy), kernels=2),
    )
    saved = (
        Saved("expert-input", copy, FULL),
        Saved("expert-norm-output", copy, LAYERNORM),
        Saved("router-logits-and-probs", 9 * gates, MOE),
        Saved("dispatched-rows", 2 * rows * hidden, MOE),
        Saved("expert-up-output", 2 * rows * up, MOE),
        Saved("expert-activation-output", 2 * rows * inter, ACTIVATION),
        Saved("row-probs", 4 * rows, MOE),
    )
    return Block(forward, backward, saved)
