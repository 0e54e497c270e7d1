"""Ends of the model: the vocabulary-parallel embedding, the final norm, the LM head with its loss, MTP's projection."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.linear import Linear, TensorRegion, traffic
from moesim.workload.ops import Block, Message, Op, Saved, Work
from moesim.workload.setting import Setting


def embedding_block(hidden: int, setting: Setting) -> Block:
    """Vocabulary-parallel embedding: look up, then sum over the tensor-parallel group."""
    gathered = 2 * setting.tokens * hidden
    split = setting.sequence_parallel
    forward = (
        traffic("embedding", 2 * gathered, 4),
        _message("embedding-sum", "reduce-scatter" if split else "all-reduce", gathered),
    )
    # the gradient rows are added into the FP32 table: read 2 B, read and write 4 B
    gather = (_message("embedding-grad", "all-gather", gathered),) if split else ()
    return Block(forward, (*gather, traffic("embedding-wgrad", 5 * gathered, 3)), ())


def head_block(hidden: int, vocab: int, setting: Setting, norm: bool = True) -> Block:
    """Final norm, LM head and vocabulary-parallel cross entropy.

    Without fusion the loss is Megatron-Core's ``VocabParallelCrossEntropy`` pass by pass. Fused, the logits are read
    and their gradient is written in place.
    """
    tokens, fused = setting.tokens, setting.fusion.cross_entropy
    columns = vocab / setting.mesh.tp
    row = 2 * setting.local_tokens * hidden
    logits = tokens * columns
    linear = Linear("head", tokens, columns, hidden, setting, segment="head", low_precision=False)
    region = TensorRegion("head", 2 * tokens * hidden, setting, "head")

    def op(name: str, num_bytes: Numeric, kernels: int = 1) -> Op:
        return traffic(name, num_bytes, kernels, "head")

    # bytes per logit, unfused: reorder (2+2), cast to FP32 (2+4), maximum (4), subtract (8), exponent (8), sum (4),
    # divide (8); backward: scale the softmax in place (8), cast to BF16 (4+2), reorder (2+2)
    passes, passes_backward = (4, 4) if fused else (42, 18)
    forward = (
        *((op("final-norm", 2 * row),) if norm else ()),
        *region.enter(linear),
        op("cross-entropy", passes * logits, 2 if fused else 12),
        _message("cross-entropy-all-reduce", "all-reduce", 12 * tokens, 1 if fused else 3),
    )
    backward = (
        op("cross-entropy-backward", passes_backward * logits, 1 if fused else 6),
        *region.enter_backward(linear),
        *((op("final-norm-backward", 4 * row, 2),) if norm else ()),
    )
    saved = (
        Saved("head-input", 2 * row),
        Saved("logits", _held_bytes(setting) * logits),
    )
    return Block(forward, backward, saved)


def _held_bytes(setting: Setting) -> Numeric:
    """Bytes a logit at the peak of the loss, which may be another loss where ranks share the vocabulary. [B]"""
    alone, shared = setting.fusion.logits_bytes, setting.fusion.parallel_logits_bytes
    return alone if shared is None else np.where(np.greater(setting.mesh.tp, 1), shared, alone)


def mtp_block(hidden: int, setting: Setting) -> Block:
    """Input of a multi-token-prediction module: two norms, and the projection from twice the width."""
    local = setting.local_tokens
    row = 2 * local * hidden
    linear = Linear("mtp-projection", local, hidden, 2 * hidden, setting)
    forward = (traffic("mtp-norms", 4 * row, 2), *linear.forward())
    backward = (*linear.backward(), traffic("mtp-norms-backward", 8 * row, 4))
    return Block(forward, backward, (Saved("mtp-input", 2 * row), linear.saved("mtp-projection-input", frozenset())))


def _message(name: str, collective: str, size: Numeric, kernels: int = 1) -> Op:
    segment = "head" if name.startswith("cross") else "attention"
    work: Work = Message(collective, "tp", size)
    return Op(name, "tp", work, kernels, segment)
