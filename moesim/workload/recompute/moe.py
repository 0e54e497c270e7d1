"""Run the routed experts again, router and both exchange legs included."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "moe",
    RecomputePolicy(module="moe"),
    summary="Run the routed experts again, router and both exchange legs included.",
    source="megatron-lm",
)
