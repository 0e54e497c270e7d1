"""The expert half of a decoder layer: norm, router, dispatch, grouped expert GEMMs, combine, shared experts, residual.

Tokens reach the router split over the tensor-parallel group (sequence parallelism), so each rank routes its own
``b s / (cp tp)`` tokens. ``Setting.routed_load`` scales the rows of the rank that the others wait for.
"""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.dense import SHARED, FeedForward, feed_forward
from moesim.workload.linear import FULL, addition, traffic
from moesim.workload.model import Dense, Moe
from moesim.workload.ops import Block, Gemm, Message, Op, Saved, Traffic
from moesim.workload.routed import MOE, Routed
from moesim.workload.setting import Setting

LAYERNORM = frozenset({"layernorm", "full"})


def expert_block(moe: Moe, hidden: int, setting: Setting, norms: int = 1) -> Block:
    """Operations and saved tensors of one routed-expert block. Counts per rank and micro-batch."""
    local, passes, products = setting.local_tokens, setting.passes, setting.products
    routed = Routed(moe, hidden, setting)
    copy = 2 * local * hidden
    gates = local * moe.num_experts
    shared = _shared(moe, hidden, setting)
    extra = norms == 2
    forward = (
        traffic("expert-norm", 2 * copy, modules=LAYERNORM),
        Op("router", "gemm", Gemm(local, moe.num_experts, hidden), modules=MOE),
        Op("router-top-k", "memory_bound", Traffic(24 * gates), 10, modules=MOE),
        *(() if setting.overlap_shared_expert else shared.forward),
        *_dispatch_cast(copy / 2, setting),
        routed.layout("permute", passes.before_dispatch, "attention"),
        *_hot_experts(routed, "gather-hot-experts", "all-gather", 2.0),
        *(_fused_forward(routed) if products.fused_forward else _exchanged_forward(routed, shared)),
        routed.layout("unpermute", passes.after_combine, "combine"),
        *((traffic("expert-output-norm", 2 * copy, 1, "combine", LAYERNORM),) if extra else ()),
        addition("expert-residual", (4 if moe.shared_size else 3) * copy, "combine"),
    )
    backward = (
        addition("expert-residual-backward", 2 * copy, "combine"),
        *((traffic("expert-output-norm-backward", 4 * copy, 2, "combine"),) if extra else ()),
        routed.layout("unpermute-backward", passes.after_combine, "combine"),
        *_leg_cast("combine-backward-cast", local, routed, "combine"),
        *_hot_experts(routed, "gather-hot-experts-again", "all-gather", 2.0),
        *(_fused_backward(routed) if products.fused_backward else _exchanged_backward(routed, shared)),
        *_hot_experts(routed, "reduce-hot-experts", "reduce-scatter", 4.0),
        routed.layout("permute-backward", passes.before_dispatch, "attention"),
        *(() if setting.overlap_shared_expert else shared.backward),
        traffic("router-top-k-backward", 24 * gates, 8),
        Op("router-dgrad", "gemm", Gemm(local, hidden, moe.num_experts)),
        Op(
            "router-wgrad",
            "gemm",
            Gemm(hidden, moe.num_experts, local, accumulate=True),
            held_bytes=copy + 2 * gates,
        ),
        traffic("expert-norm-backward", 4 * copy, 2),
    )
    saved = (
        Saved("expert-input", copy, FULL),
        Saved("expert-norm-output", copy, LAYERNORM),
        Saved("router-logits-and-probs", 9 * gates, MOE),
        *routed.saved(),
        *shared.saved,
        *((Saved("before-expert-output-norm", copy, FULL),) if extra else ()),
    )
    return Block(forward, backward, saved)


def _exchanged_forward(routed: Routed, shared: FeedForward) -> tuple[Op, ...]:
    """Dispatch, products, combine, one after the other; or wave by wave, all dispatches before the first combine.

    Shared experts that overlap run their up-projection beside the dispatch and their down-projection beside the combine.
    """
    waves = routed.waves()
    legs = [wave.leg("dispatch", "dispatch") for wave in waves]
    rest: tuple[Op, ...] = ()
    for wave, leg in zip(waves, legs, strict=True):
        rows = wave.forward() + _leg_cast("combine-cast", wave.rows, wave)
        rest += (*_behind(leg, rows, len(waves)), wave.leg("combine", "combine"))
    up, down = shared.forwards if routed.setting.overlap_shared_expert else ((), ())
    return (*_beside(legs[0], up), *legs[1:], *rest[:-1], *_beside(rest[-1], down))


def _exchanged_backward(routed: Routed, shared: FeedForward) -> tuple[Op, ...]:
    """The same for the gradients; delayed weight gradients run beside the last leg."""
    waves, delayed = routed.waves(), routed.setting.products.delay_wgrad
    legs = [wave.leg("dispatch", "combine-backward") for wave in waves]
    rest: tuple[Op, ...] = ()
    for wave, leg in zip(waves, legs, strict=True):
        rows = wave.backward(delayed) + _leg_cast("dispatch-backward-cast", wave.rows, wave)
        rest += (*_behind(leg, rows, len(waves)), wave.leg("combine", "dispatch-backward"))
    down, up = shared.backwards if routed.setting.overlap_shared_expert else ((), ())
    if delayed:
        up += tuple(op for wave in waves for op in wave.weight_gradients())
    return (*_beside(legs[0], down), *legs[1:], *rest[:-1], *_beside(rest[-1], up))


def _behind(leg: Op, ops: tuple[Op, ...], waves: int) -> tuple[Op, ...]:
    """Operations on the rows of a wave, which wait for its leg and not for those of the others."""
    return (replace(ops[0], needs=(leg.name,)), *ops[1:]) if waves > 1 else ops


def _beside(leg: Op, ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """The leg with operations beside it, and the moment at which both are done."""
    if not ops:
        return (leg,)
    others = tuple(replace(op, segment=leg.segment) for op in ops)
    needs = (leg.name, others[-1].name)
    join = Op(f"beside-{leg.name}-join", "memory_bound", Traffic(0.0), 0, leg.segment, leg.modules, needs)
    return (leg, replace(others[0], beside=True), *others[1:], join)


def _fused_forward(routed: Routed) -> tuple[Op, ...]:
    """One persistent kernel from dispatch to combine."""
    legs = (routed.leg("dispatch", "dispatch"), routed.leg("combine", "combine"))
    return (routed.fused("expert-kernel", legs, (routed.up.forward()[-1], routed.down.forward()[-1])),)


def _fused_backward(routed: Routed) -> tuple[Op, ...]:
    """One persistent kernel for what leaves, and the weight gradients behind it."""
    legs = (routed.leg("dispatch", "combine-backward"), routed.leg("combine", "dispatch-backward"))
    kernel = routed.fused("expert-kernel-backward", legs, (routed.down.dgrad()[-1], routed.up.dgrad()[-1]))
    return (kernel, *routed.weight_gradients())


def _dispatch_cast(values: Numeric, setting: Setting) -> tuple[Op, ...]:
    """Cast of the tokens, once, where they travel in the format of the products."""
    recipe = setting.recipe
    if not (setting.products.low_dispatch and recipe.casts):
        return ()
    work = Traffic(recipe.cast_bytes * values, cast=True)
    return (Op("dispatch-cast", "memory_bound", work, recipe.cast_kernels, modules=MOE),)


def _leg_cast(name: str, rows: Numeric, routed: Routed, segment: str = "experts") -> tuple[Op, ...]:
    """Cast of rows that leave, where every leg carries them in the format of the products."""
    setting = routed.setting
    if not (setting.products.low_legs and setting.recipe.casts):
        return ()
    work = Traffic(setting.recipe.cast_bytes * rows * routed.hidden, cast=True)
    return (Op(name + routed.suffix, "memory_bound", work, setting.recipe.cast_kernels, segment, MOE),)


def _hot_experts(routed: Routed, name: str, collective: str, value_bytes: float) -> tuple[Op, ...]:
    """Weights, or gradients, of the experts that every rank has a copy of."""
    setting = routed.setting
    if not setting.replicated:
        return ()
    size = value_bytes * setting.replicated * routed.moe.expert_params(routed.hidden) / setting.mesh.etp
    return (Op(name, "ep", Message(collective, "ep", size), 1, "dispatch", MOE),)


def _shared(moe: Moe, hidden: int, setting: Setting) -> FeedForward:
    """The shared experts: one feed-forward of their joint width."""
    if not moe.shared_size:
        return FeedForward()
    return feed_forward(Dense(moe.shared_size, moe.gated), hidden, setting, "shared", "attention", SHARED)
