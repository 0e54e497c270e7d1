"""Run the shared experts again."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "shared_experts",
    RecomputePolicy(module="shared_experts"),
    summary="Run the shared experts again.",
    source="megatron-lm",
)
