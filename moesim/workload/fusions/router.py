"""Scores, top-k, and the map of routes in one kernel, forward and backward."""

from dataclasses import replace

from moesim.workload.fusions import Fused, Ops, fusions
from moesim.workload.ops import Traffic

SHARES = {"router-top-k": 9 / 24, "router-top-k-backward": 12 / 24}
"""Bytes over those of the separate kernels: an FP32 logit read, a probability and a flag written, 9 B a token and expert;
backward two FP32 values read and one written, 12 B. Separate kernels move 24 B."""


def one_router_kernel(ops: Ops, _: float) -> Ops:
    """The routing behind the router's product as one launch each way."""
    return tuple(
        replace(op, work=Traffic(op.work.hbm_bytes * SHARES[op.name]), kernels=1) if op.name in SHARES else op
        for op in ops
    )


fusions.add(
    "router",
    Fused(one_router_kernel, needs_experts=True),
    summary="Softmax, top-k and route map of the router in one kernel.",
    source="megatron-lm",
)
