"""An activation that writes what the next product reads: no 16-bit tensor between SwiGLU and the cast."""

from dataclasses import replace

from moesim.workload.fusions import Fused, Ops, fusions
from moesim.workload.ops import Traffic


def quantizing_activation(ops: Ops, cast_bytes: float) -> Ops:
    r"""Each activation joined with the cast that follows it.

    .. math:: B = B_{act} + B_{cast} - 2 \cdot 2 n

    The n values that the one wrote and the other read stay on the SM.
    """
    joined: list[object] = []
    result: Ops = ()
    for op, after in zip(ops, (*ops[1:], None), strict=True):
        if op.name in joined:
            continue
        if after is not None and "activation" in op.name and isinstance(after.work, Traffic) and after.work.cast:
            values = after.work.hbm_bytes / cast_bytes
            work = Traffic(op.work.hbm_bytes + after.work.hbm_bytes - 4 * values, cast=True)
            result += (replace(op, work=work, kernels=1),)
            joined.append(after.name)
        else:
            result += (op,)
    return result


fusions.add(
    "activation-quantize",
    Fused(quantizing_activation, needs_casts=True),
    summary="SwiGLU, or its gradient, writes the operand of the next product in the recipe's format.",
    source="transformer-engine",
)
