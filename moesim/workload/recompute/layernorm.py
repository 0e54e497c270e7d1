"""Run both norms of a layer again; their outputs are dropped."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "layernorm",
    RecomputePolicy(module="layernorm"),
    summary="Run both norms of a layer again; their outputs are dropped.",
    source="megatron-lm",
)
