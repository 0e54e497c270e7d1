"""The attention half of a decoder layer: norm, QKV, attention core, output projection, residual.

Tensor parallelism with sequence parallelism (Korthikanti et al. 2022): activations between the regions are split over
the sequence; an all-gather precedes the QKV projection and a reduce-scatter follows the output projection. In the
backward the gathered input is gathered again beside dgrad, and the reduce-scatter of dx runs beside wgrad, as the
linear layers of Megatron-Core and Transformer Engine do.
"""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.batch import MicroBatch
from moesim.workload.model import Attention
from moesim.workload.ops import AttentionCore, Block, Gemm, Message, Op, Saved, Traffic

LAYERNORM = frozenset({"layernorm", "full"})
CORE = frozenset({"core_attn", "full"})
FULL = frozenset({"full"})


def attention_block(attention: Attention, hidden: int, batch: MicroBatch) -> Block:
    """Operations and saved tensors of one attention block. Counts per rank and micro-batch."""
    tp, tokens, local = batch.mesh.tp, batch.tokens, batch.local_tokens
    heads = attention.num_heads / tp
    kv_heads = np.maximum(attention.num_kv_heads / tp, 1)  # replicated once tp exceeds them
    head_dim = attention.head_dim
    qkv = (heads + 2 * kv_heads) * head_dim
    rotated = tokens * (heads + kv_heads) * head_dim
    row = 2 * local * hidden
    gathered = 2 * tokens * hidden

    def core(backward: bool) -> AttentionCore:
        return AttentionCore(
            batch=batch.sequences,
            heads=heads,
            kv_heads=kv_heads,
            length=batch.sequence_length / batch.mesh.cp,
            head_dim=head_dim,
            value_dim=head_dim,
            backward=backward,
        )

    qk_norm_forward = (_traffic("qk-norm", 4 * rotated, kernels=2),) if attention.qk_norm else ()
    qk_norm_backward = (_traffic("qk-norm-dgrad", 6 * rotated, kernels=2),) if attention.qk_norm else ()

    forward = (
        Op("input-norm", "memory_bound", Traffic(2 * row), modules=LAYERNORM),
        Op("qkv-all-gather", "tp", Message("all-gather", "tp", gathered), modules=FULL),
        Op("qkv", "gemm", Gemm(tokens, qkv, hidden), modules=FULL),
        *qk_norm_forward,
        _traffic("rope", 4 * rotated, kernels=2),
        Op("attention-core", "attention", core(False), kernels=2, modules=CORE),
        Op("projection", "gemm", Gemm(tokens, hidden, heads * head_dim), modules=FULL),
        Op("projection-reduce-scatter", "tp", Message("reduce-scatter", "tp", gathered), modules=FULL),
        _traffic("attention-residual", 3 * row),
    )
    backward = (
        _traffic("attention-residual-dgrad", 2 * row),
        Op("projection-grad-all-gather", "tp", Message("all-gather", "tp", gathered)),
        Op("projection-dgrad", "gemm", Gemm(tokens, heads * head_dim, hidden)),
        Op("projection-wgrad", "gemm", Gemm(heads * head_dim, hidden, tokens, accumulate=True)),
        Op("attention-core-backward", "attention", core(True), kernels=3),
        _traffic("rope-dgrad", 4 * rotated, kernels=2),
        *qk_norm_backward,
        Op("qkv-input-all-gather", "tp", Message("all-gather", "tp", gathered)),
        Op("qkv-dgrad", "gemm", Gemm(tokens, hidden, qkv), needs=(_before_dgrad(attention),)),
        Op("qkv-reduce-scatter", "tp", Message("reduce-scatter", "tp", gathered), needs=("qkv-dgrad",)),
        Op(
            "qkv-wgrad",
            "gemm",
            Gemm(hidden, qkv, tokens, accumulate=True),
            needs=("qkv-input-all-gather", "qkv-dgrad"),
        ),
        Op(
            "input-norm-backward",
            "memory_bound",
            Traffic(4 * row),
            kernels=2,
            needs=("qkv-reduce-scatter", "qkv-wgrad"),
        ),
    )
    qk_saved = (Saved("rotated-query-key", 2 * rotated, FULL),) if attention.qk_norm else ()
    saved = (
        Saved("layer-input", row),
        Saved("input-norm-output", row, LAYERNORM),
        Saved("qkv-output", 2 * tokens * qkv, FULL),
        *qk_saved,
        Saved("attention-output", 2 * tokens * heads * head_dim, FULL),
        Saved("attention-logsumexp", 4 * tokens * heads, CORE),
    )
    return Block(forward, backward, saved)


def _traffic(name: str, num_bytes: Numeric, kernels: int = 1) -> Op:
    return Op(name, "memory_bound", Traffic(num_bytes), kernels=kernels, modules=FULL)


def _before_dgrad(attention: Attention) -> str:
    return "qk-norm-dgrad" if attention.qk_norm else "rope-dgrad"
