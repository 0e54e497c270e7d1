"""What becomes of the weight gradients of a micro-batch where their GEMM does not add them into a buffer of the step."""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.ops import Block, Gemm, Op, Traffic

SUMMED = "-add"
"""What the name of the kernel that adds a gradient ends with."""
SUM_BYTES = 6.0
"""Of a BF16 value that is added to another one: two reads and a write. [B]"""


def added_gradients(block: Block, grad_bytes: float, slowdown: float, halves: int = 1, waves: int = 1) -> Block:
    r"""The block whose weight gradients leave their GEMM in BF16 and are added behind it.

    A gradient is read, its place in the buffer is read and written. Every rank adds the gradients of all weights it
    holds, in each micro-batch, whether or not tokens met them: what experts that stay local cost beside memory. Parts of
    a micro-batch that meet the same weights are summed in BF16 first, and only the sum goes to the buffer:

    .. math:: t = \frac{s (2 + 2 g) + 6 (n - 1)}{n} \frac{P}{\beta}

    for each of n parts, with P weights, g bytes of a value in the buffer and the slowdown s.

    Parameters
    ----------
    block
        A piece of a model.
    grad_bytes
        Of a value in the buffer. [B]
    slowdown
        Time of a kernel that adds to the buffer over that of a plain one of as many bytes. [-]
    halves, waves
        Parts of a micro-batch that all weights, and that those of the routed experts, meet one after the other. [-]

    References
    ----------
    olmo-core-profile, table of the work in two updates: "FP32 add elementwise kernel"
    """
    behind = {op.name: op.name + SUMMED for op in block.backward if isinstance(op.work, Gemm) and op.work.accumulate}
    found: list[Op] = []
    for op in block.backward:
        needs = tuple(behind.get(name, name) for name in op.needs)
        found.append(replace(_written(op), needs=needs))
        if op.name not in behind or not isinstance(op.work, Gemm):
            continue
        parts = halves * (waves if op.category == "grouped_gemm" else 1)
        into, among = 2 + 2 * grad_bytes, SUM_BYTES * (parts - 1)
        values = op.work.groups * op.work.m * op.work.n
        slower = (slowdown * into + among) / (into + among)
        work = Traffic((into + among) / parts * values, plain=True, slowdown=slower)
        kernels = 0  # counted among those of the layer
        add = Op(behind[op.name], "memory_bound", work, kernels, op.segment, op.modules, scope=op.scope, held_bytes=0.0)
        found.append(add)
    return replace(block, backward=tuple(found))


STAGED = "gradients-staged"
"""Name of the kernel that copies the gradients of a block to where they are reduced."""


def staged_gradients(block: Block, values: Numeric, grad_bytes: float, aside: bool) -> Block:
    r"""The block whose weight gradients leave their GEMM in BF16 and are copied into the input of a reduction behind it.

    No gradient of the micro-batch before is there to be added to: it went to its shards. FSDP2 casts the gradients of a
    block into the buffer that it scatters, Megatron-FSDP those of a parameter into its bucket, both on the stream that
    computes; DeepSpeed copies into its bucket on the stream that reduces. The sums of the shards are left out.

    .. math:: t = \frac{(2 + g) P}{\beta}

    Parameters
    ----------
    block
        A piece of a model.
    values
        Gradients of the block on a rank, P. [-]
    grad_bytes
        Of a value that is reduced, g. [B]
    aside
        Whether the copy runs on the stream that reduces, beside the kernels of the next block.

    References
    ----------
    pytorch-fsdp2-collectives, foreach_reduce; megatron-fsdp, _grad_acc; deepspeed-stage3, __add_grad_to_ipg_bucket
    """
    work = Traffic((2 + grad_bytes) * values, plain=True)
    kernels = 0  # counted with the reduction
    copy = Op(STAGED, "dp" if aside else "memory_bound", work, kernels, detached=aside, held_bytes=0.0)
    return replace(block, backward=(*map(_written, block.backward), copy))


def _written(op: Op) -> Op:
    """The operation; a product writes its result and adds to no buffer."""
    return replace(op, work=replace(op.work, accumulate=False)) if isinstance(op.work, Gemm) else op
