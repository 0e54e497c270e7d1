"""Run the dense feed-forward again."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "mlp",
    RecomputePolicy(module="mlp"),
    summary="Run the dense feed-forward again.",
    source="megatron-lm",
)
