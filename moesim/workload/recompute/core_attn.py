"""Run the attention core again; its output stays (the projection needs it)."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "core_attn",
    RecomputePolicy(module="core_attn"),
    summary="Run the attention core again; its output stays (the projection needs it).",
    source="megatron-lm",
)
