"""The attention half of a decoder layer: norm, projections, attention core, output projection, residual."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.latent import latent_projections
from moesim.workload.linear import FULL, Linear, TensorRegion, addition, traffic
from moesim.workload.model import Attention, LatentAttention
from moesim.workload.ops import AttentionCore, Block, Gemm, Message, Op, Saved
from moesim.workload.projections import Projections
from moesim.workload.setting import Setting

LAYERNORM = frozenset({"layernorm", "full"})
CORE = frozenset({"core_attn", "attn", "full"})
ATTENTION = frozenset({"attn", "full"})


def attention_block(attention: Attention | LatentAttention, hidden: int, setting: Setting, norms: int = 1) -> Block:
    """Operations and saved tensors of one attention block. Counts per rank and micro-batch.

    ``norms`` is 1 (before the block) or 2 (also behind it).
    """
    tp = setting.mesh.tp
    row = 2 * setting.local_tokens * hidden
    make: Callable[..., Projections] = latent_projections if isinstance(attention, LatentAttention) else projections
    made = make(attention, hidden, setting)
    width = attention.num_heads * attention.value_dim / tp
    output = Linear("projection", setting.tokens, hidden, width, setting, modules=ATTENTION)
    region = TensorRegion("projection", 2 * setting.tokens * hidden, setting)
    before, after, exchange_saved = _exchange(attention, setting)
    core_forward, core_backward = _core(attention, setting)
    extra = norms == 2

    forward = (
        traffic("input-norm", 2 * row, modules=LAYERNORM),
        *made.forward,
        *before(""),
        *core_forward,
        *after(""),
        *region.leave(output),
        *((traffic("output-norm", 2 * row, modules=LAYERNORM),) if extra else ()),
        addition("attention-residual", 3 * row),
    )
    backward = (
        addition("attention-residual-backward", 2 * row),
        *((traffic("output-norm-backward", 4 * row, 2),) if extra else ()),
        *region.leave_backward(output),
        *after("-backward"),
        *core_backward,
        *before("-backward"),
        *made.backward,
        traffic("input-norm-backward", 4 * row, 2),
    )
    saved = (
        Saved("layer-input", row),
        *made.saved,
        *exchange_saved,
        Saved("attention-output", (2 + setting.recipe.beside_output_bytes) * setting.tokens * width, ATTENTION),
        *_statistics(attention, setting),
        *((Saved("before-output-norm", row, FULL),) if extra else ()),
    )
    return Block(forward, backward, saved)


def _statistics(attention: Attention | LatentAttention, setting: Setting) -> tuple[Saved, ...]:
    """What the backward of the core needs beside its inputs: a sum a row, or all scores, their mask and what is left."""
    heads, _ = heads_per_rank(attention, setting.mesh.tp)
    if setting.fusion.attention == "unfused":
        scores = setting.tokens * setting.sequence_length * heads
        return (
            Saved("attention-probabilities", 2 * scores, CORE),
            Saved("attention-dropout-mask", scores, CORE),
            Saved("attention-dropped-probabilities", 2 * scores, CORE),
        )
    return (Saved("attention-logsumexp", 4 * setting.tokens * heads, CORE),)


def projections(attention: Attention, hidden: int, setting: Setting) -> Projections:
    """Fused QKV projection, per-head norms, rotary embedding."""
    tp, tokens = setting.mesh.tp, setting.tokens
    heads, kv_heads = heads_per_rank(attention, tp)
    row = 2 * setting.local_tokens * hidden
    rotated = tokens * (heads + kv_heads) * attention.head_dim
    linear = Linear("qkv", tokens, (heads + 2 * kv_heads) * attention.head_dim, hidden, setting, modules=ATTENTION)
    region = TensorRegion("qkv", 2 * tokens * hidden, setting)
    norm_forward = (traffic("qk-norm", 4 * rotated, 2, modules=ATTENTION),) if attention.qk_norm else ()
    norm_backward = (traffic("qk-norm-backward", 6 * rotated, 2),) if attention.qk_norm else ()
    compiled = setting.fusion.compiled
    rope = () if not attention.rope else (traffic("rope", 4 * rotated, 1 if compiled else 2, modules=ATTENTION),)
    rope_backward = () if not attention.rope else (traffic("rope-backward", 4 * rotated, 1 if compiled else 2),)
    kept_twice = attention.rope and not compiled
    return Projections(
        forward=(*region.enter(linear), *norm_forward, *rope),
        backward=(*rope_backward, *norm_backward, *region.enter_backward(linear)),
        saved=(
            Saved("input-norm-output", row * setting.recipe.saved_bytes / 2, LAYERNORM),
            Saved("qkv-output", 2 * tokens * (heads + 2 * kv_heads) * attention.head_dim, ATTENTION),
            *((Saved("rotated-query-key", 2 * rotated, ATTENTION),) if kept_twice else ()),
        ),
    )


def heads_per_rank(attention: Attention | LatentAttention, tp: Numeric) -> tuple[Numeric, Numeric]:
    """Query heads and key-value heads on one tensor-parallel rank; KV heads are replicated once tp exceeds them. [-]"""
    return attention.num_heads / tp, np.maximum(attention.num_kv_heads / tp, 1.0)


def _core(attention: Attention | LatentAttention, setting: Setting) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The attention core of one rank, forward and backward; a ring passes keys and values beside it."""
    mesh, length = setting.mesh, setting.sequence_length
    heads, kv_heads = heads_per_rank(attention, mesh.tp)
    ring = setting.cp_kind == "ring"
    split = 1.0 if ring else mesh.cp
    columns = setting.columns(attention.window, attention.chunk)

    def core(backward: bool) -> AttentionCore:
        return AttentionCore(
            batch=setting.sequences,
            heads=heads / split,
            kv_heads=np.maximum(kv_heads / split, 1.0),
            queries=length / mesh.cp if ring else float(length),
            columns=columns,
            query_dim=attention.query_dim,
            value_dim=attention.value_dim,
            backward=backward,
            kernel=_kernel(attention, setting),
        )

    if setting.fusion.attention == "unfused":
        ops = [unfused_core(core(backward), float(length)) for backward in (False, True)]
        messages = _ring_messages(attention, setting) if ring else ((), ())
        return (*messages[0], *ops[0]), (*messages[1], *ops[1])
    forward = Op("attention-core", "attention", core(False), kernels=2, modules=CORE)
    backward = Op("attention-core-backward", "attention", core(True), kernels=3)
    if not ring:
        return (forward,), (backward,)
    messages = _ring_messages(attention, setting)
    return (
        (*messages[0], *_beside(forward, messages[0][0].name)),
        (*messages[1], *_beside(backward, messages[1][0].name)),
    )


def _kernel(attention: Attention | LatentAttention, setting: Setting) -> str:
    """Kind of the core's kernel; FP8 where the software has it, the recipe casts and the heads are of one width."""
    kind = setting.fusion.attention
    if kind == "fp8" and not (setting.recipe.casts and attention.query_dim == attention.value_dim):
        return "latest"
    return kind


def _ring_messages(attention: Attention | LatentAttention, setting: Setting) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Keys and values on their way around the ring; backward again, and their gradients on the way back."""
    _, kv_heads = heads_per_rank(attention, setting.mesh.tp)
    width = attention.query_dim + attention.value_dim
    size = 2 * setting.sequences * setting.sequence_length * kv_heads * width
    return (
        (Op("key-value-ring", "cp", Message("all-gather", "cp", size), modules=CORE),),
        (Op("key-value-ring-backward", "cp", Message("all-gather", "cp", 2 * size)),),
    )


def unfused_core(core: AttentionCore, keys: float) -> tuple[Op, ...]:
    """The core as products, softmax and dropout of their own, forward or backward: the mask saves nothing.

    Scores pass memory once a kernel: 16-bit values, and a mask of one byte for the dropout.

    References
    ----------
    korthikanti2022, section 4.1 (what is kept: 5 bytes a score)
    """
    products = core.batch * core.heads
    scores = products * core.queries * keys
    word, modules = ("-backward", frozenset[str]()) if core.backward else ("", CORE)
    key_product = Op(
        f"attention-scores{word}", "gemm", Gemm(core.queries, keys, core.query_dim, products), modules=modules
    )
    value_product = Op(
        f"attention-values{word}", "gemm", Gemm(core.queries, core.value_dim, keys, products), modules=modules
    )
    if not core.backward:
        return (
            key_product,
            traffic("attention-softmax", 4 * scores, modules=modules),
            traffic("attention-dropout", 5 * scores, modules=modules),
            value_product,
        )
    return (
        value_product,
        replace(value_product, name="attention-probabilities-gradient"),
        traffic("attention-dropout-backward", 5 * scores),
        traffic("attention-softmax-backward", 6 * scores),
        key_product,
        replace(key_product, name="attention-key-gradient"),
    )


def _beside(op: Op, message: str) -> tuple[Op, ...]:
    """The op side by side with the message before it, then a point where both are done."""
    join = traffic(f"{op.name}-join", 0.0, 0, modules=op.modules)
    return (replace(op, beside=True), replace(join, needs=(message, op.name)))


def _nothing(_: str) -> tuple[Op, ...]:
    return ()


def _exchange(
    attention: Attention | LatentAttention, setting: Setting
) -> tuple[Callable[[str], tuple[Op, ...]], Callable[[str], tuple[Op, ...]], tuple[Saved, ...]]:
    """All-to-alls of Ulysses around the core: heads for sequence and back; the exchanged copies are kept."""
    if setting.cp_kind == "ring":
        return _nothing, _nothing, ()
    heads, kv_heads = heads_per_rank(attention, setting.mesh.tp)
    into = 2 * setting.tokens * (heads * attention.query_dim + kv_heads * (attention.query_dim + attention.value_dim))
    out = 2 * setting.tokens * heads * attention.value_dim
    wide = setting.mesh.cp > 1

    def before(suffix: str) -> tuple[Op, ...]:
        return (Op(f"heads-to-sequence{suffix}", "cp", Message("all-to-all", "cp", into), 3, modules=ATTENTION),)

    def after(suffix: str) -> tuple[Op, ...]:
        return (Op(f"sequence-to-heads{suffix}", "cp", Message("all-to-all", "cp", out), modules=ATTENTION),)

    return before, after, (Saved("exchanged-heads", (into + out) * wide, ATTENTION),)
