"""Gradients of a micro-batch that a kernel of its own adds into the buffer of the step."""

from dataclasses import replace

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
        found.append(replace(op, needs=needs))
        if op.name not in behind or not isinstance(op.work, Gemm):
            continue
        found[-1] = replace(found[-1], work=replace(op.work, accumulate=False))
        parts = halves * (waves if op.category == "grouped_gemm" else 1)
        into, among = 2 + 2 * grad_bytes, SUM_BYTES * (parts - 1)
        values = op.work.groups * op.work.m * op.work.n
        slower = (slowdown * into + among) / (into + among)
        work = Traffic((into + among) / parts * values, plain=True, slowdown=slower)
        kernels = 0  # counted among those of the layer
        add = Op(behind[op.name], "memory_bound", work, kernels, op.segment, op.modules, scope=op.scope, held_bytes=0.0)
        found.append(add)
    return replace(block, backward=tuple(found))
