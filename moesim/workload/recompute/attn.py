"""Run the whole attention block again, projections included."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "attn",
    RecomputePolicy(module="attn"),
    summary="Run the whole attention block again, projections included.",
    source="megatron-lm",
)
