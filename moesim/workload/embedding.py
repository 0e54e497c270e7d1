"""Ends of the model: the vocabulary-parallel embedding, the final norm, the LM head and its loss."""

from moesim.workload.batch import MicroBatch
from moesim.workload.ops import Block, Gemm, Message, Op, Saved, Traffic


def embedding_block(hidden: int, batch: MicroBatch) -> Block:
    """Vocabulary-parallel embedding: look up, then reduce-scatter over the tensor-parallel group."""
    gathered = 2 * batch.tokens * hidden
    forward = (
        Op("embedding", "memory_bound", Traffic(2 * gathered), kernels=4),
        Op("embedding-reduce-scatter", "tp", Message("reduce-scatter", "tp", gathered)),
    )
    backward = (
        Op("embedding-grad-all-gather", "tp", Message("all-gather", "tp", gathered)),
        # the gradient rows are added into the FP32 table: read 2 B, read and write 4 B
        Op("embedding-wgrad", "memory_bound", Traffic(5 * gathered), kernels=3),
    )
    return Block(forward, backward, ())


def head_block(hidden: int, vocab: int, batch: MicroBatch) -> Block:
    """Final norm, LM head and vocabulary-parallel cross entropy (logits BF16, softmax FP32).

    The loss is Megatron-Core's ``VocabParallelCrossEntropy`` pass by pass, not fused.
    """
    tokens, local = batch.tokens, batch.local_tokens
    columns = vocab / batch.mesh.tp
    row = 2 * local * hidden
    gathered = 2 * tokens * hidden
    logits = tokens * columns

    def head(
        name: str, work: Gemm | Message | Traffic, category: str, kernels: int = 1, needs: tuple[str, ...] = ()
    ) -> Op:
        return Op(name, category, work, kernels=kernels, segment="head", needs=needs)

    forward = (
        head("final-norm", Traffic(2 * row), "memory_bound"),
        head("head-all-gather", Message("all-gather", "tp", gathered), "tp"),
        head("head", Gemm(tokens, columns, hidden), "gemm"),
        # bytes per logit: reorder (2+2), cast to FP32 (2+4), maximum (4), subtract (8), exponent (8), sum (4), divide (8)
        head("cross-entropy", Traffic(42 * logits), "memory_bound", kernels=12),
        head("cross-entropy-all-reduce", Message("all-reduce", "tp", 12 * tokens), "tp", kernels=3),
    )
    backward = (
        # bytes per logit: scale the softmax in place (8), cast to BF16 (4+2), reorder (2+2)
        head("cross-entropy-backward", Traffic(18 * logits), "memory_bound", kernels=6),
        head("head-dgrad", Gemm(tokens, hidden, columns), "gemm"),
        head("head-reduce-scatter", Message("reduce-scatter", "tp", gathered), "tp", needs=("head-dgrad",)),
        head("head-wgrad", Gemm(hidden, columns, tokens, accumulate=True), "gemm", needs=("head-dgrad",)),
        head("final-norm-backward", Traffic(4 * row), "memory_bound", 2, needs=("head-reduce-scatter", "head-wgrad")),
    )
    saved = (
        Saved("head-input", row + gathered),
        Saved("logits", 2 * logits),
        Saved("softmax", 4 * logits),
    )
    return Block(forward, backward, saved)
