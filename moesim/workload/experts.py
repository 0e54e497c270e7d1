"""The expert half of a decoder layer: norm, router, dispatch, grouped expert GEMMs, combine, shared experts, residual.

Tokens reach the router split over the tensor-parallel group (sequence parallelism), so each rank routes its own
``b s / (cp tp)`` tokens. ``Setting.routed_load`` scales the rows of the rank that the others wait for.
"""

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.dense import SHARED, FeedForward, feed_forward
from moesim.workload.linear import FULL, Linear, addition, traffic
from moesim.workload.model import Dense, Moe
from moesim.workload.ops import Block, ExpertLeg, Gemm, Message, Op, Saved, Traffic
from moesim.workload.setting import Setting

LAYERNORM = frozenset({"layernorm", "full"})
MOE = frozenset({"moe", "full"})
ACTIVATION = frozenset({"moe_act", "moe", "full"})


def expert_rows(moe: Moe, setting: Setting) -> Numeric:
    """Token rows that the local experts of the slowest rank process. [-]"""
    return setting.local_tokens * moe.top_k * setting.mesh.etp * setting.routed_load


def expert_leg(moe: Moe, hidden: int, setting: Setting, direction: str = "dispatch", counts: bool = False) -> ExpertLeg:
    """One leg of the expert exchange."""
    return ExpertLeg(
        direction,
        setting.local_tokens,
        moe.top_k,
        moe.num_experts,
        (setting.recipe.row_bytes if direction == "dispatch" else 2.0) * hidden,
        counts,
        load=setting.routed_load,
    )


def expert_block(moe: Moe, hidden: int, setting: Setting, norms: int = 1) -> Block:
    """Operations and saved tensors of one routed-expert block. Counts per rank and micro-batch."""
    mesh, local, passes = setting.mesh, setting.local_tokens, setting.passes
    rows = expert_rows(moe, setting)
    experts = moe.num_experts / mesh.ep
    per_expert = rows / experts
    inner = moe.ffn_size / mesh.etp
    wide = (2 if moe.gated else 1) * inner
    copy = 2 * local * hidden
    gates = local * moe.num_experts

    def leg(direction: str, name: str) -> Op:
        counts = name == "dispatch"
        work = expert_leg(moe, hidden, setting, direction, counts)
        segment = "dispatch" if name.startswith("dispatch") else "combine"
        return Op(name, "ep", work, 3, segment, MOE, host_sync=counts and passes.host_syncs > 0)

    def layout(name: str, copies: Numeric, segment: str) -> Op:
        kernels = 2.0 * np.greater(copies, 0)
        return Op(name, "memory_bound", Traffic(copies * copy * setting.routed_load), kernels, segment, MOE)

    def etp(name: str, collective: str) -> Op:
        return Op(name, "tp", Message(collective, "etp", 2 * hidden * rows), 1, "experts", MOE)

    def grouped(name: str, n: Numeric, k: Numeric) -> Linear:
        return Linear(name, per_expert, n, k, setting, experts, "grouped_gemm", "experts", MOE)

    up, down = grouped("expert-up", wide, hidden), grouped("expert-down", hidden, inner)
    shared = _shared(moe, hidden, setting)
    routed_forward = (
        layout("sort-by-expert", passes.after_dispatch, "experts"),
        etp("expert-all-gather", "all-gather"),
        *up.forward(),
        Op("expert-activation", "memory_bound", Traffic(2 * rows * (wide + inner)), 2, "experts", ACTIVATION),
        *down.forward(),
        etp("expert-reduce-scatter", "reduce-scatter"),
        layout("unsort", passes.before_combine, "experts"),
    )
    extra = norms == 2
    forward = (
        traffic("expert-norm", 2 * copy, modules=LAYERNORM),
        Op("router", "gemm", Gemm(local, moe.num_experts, hidden), modules=MOE),
        Op("router-top-k", "memory_bound", Traffic(24 * gates), 10, modules=MOE),
        *(() if setting.overlap_shared_expert else shared.forward),
        layout("permute", passes.before_dispatch, "attention"),
        *_with_shared(leg("dispatch", "dispatch"), shared.forward, setting),
        *routed_forward,
        leg("combine", "combine"),
        layout("unpermute", passes.after_combine, "combine"),
        *((traffic("expert-output-norm", 2 * copy, 1, "combine", LAYERNORM),) if extra else ()),
        addition("expert-residual", (4 if moe.shared_size else 3) * copy, "combine"),
    )
    backward = (
        addition("expert-residual-backward", 2 * copy, "combine"),
        *((traffic("expert-output-norm-backward", 4 * copy, 2, "combine"),) if extra else ()),
        layout("unpermute-backward", passes.after_combine, "combine"),
        *_with_shared(leg("dispatch", "combine-backward"), shared.backward, setting),
        layout("unsort-backward", passes.before_combine, "experts"),
        etp("expert-grad-all-gather", "all-gather"),
        *down.backward(),
        Op("expert-activation-backward", "memory_bound", Traffic(2 * rows * (2 * wide + inner)), 2, "experts"),
        *up.backward(),
        etp("expert-grad-reduce-scatter", "reduce-scatter"),
        layout("sort-by-expert-backward", passes.after_dispatch, "experts"),
        leg("combine", "dispatch-backward"),
        layout("permute-backward", passes.before_dispatch, "attention"),
        *(() if setting.overlap_shared_expert else shared.backward),
        traffic("router-top-k-backward", 24 * gates, 8),
        Op("router-dgrad", "gemm", Gemm(local, hidden, moe.num_experts)),
        Op("router-wgrad", "gemm", Gemm(hidden, moe.num_experts, local, accumulate=True)),
        traffic("expert-norm-backward", 4 * copy, 2),
    )
    saved = (
        Saved("expert-input", copy, FULL),
        Saved("expert-norm-output", copy, LAYERNORM),
        Saved("router-logits-and-probs", 9 * gates, MOE),
        up.saved("dispatched-rows", MOE),
        Saved("expert-up-output", 2 * rows * wide, MOE),
        down.saved("expert-activation-output", ACTIVATION),
        Saved("row-probs", 4 * rows, MOE),
        *((Saved("expert-output", 2 * rows * hidden, MOE),) if setting.fusion.weights_in_combine else ()),
        *shared.saved,
        *((Saved("before-expert-output-norm", copy, FULL),) if extra else ()),
    )
    return Block(forward, backward, saved)


def _shared(moe: Moe, hidden: int, setting: Setting) -> FeedForward:
    """The shared experts: one feed-forward of their joint width."""
    if not moe.shared_size:
        return FeedForward((), (), ())
    return feed_forward(Dense(moe.shared_size, moe.gated), hidden, setting, "shared", "attention", SHARED)


def _with_shared(leg: Op, shared: tuple[Op, ...], setting: Setting) -> tuple[Op, ...]:
    """The leg, with the shared experts beside it where they overlap."""
    if not setting.overlap_shared_expert or not shared:
        return (leg,)
    beside = tuple(replace(op, segment=leg.segment) for op in shared)
    join = Op(
        f"{leg.name}-join", "memory_bound", Traffic(0.0), 0, leg.segment, leg.modules, (leg.name, beside[-1].name)
    )
    return (leg, replace(beside[0], beside=True), *beside[1:], join)
