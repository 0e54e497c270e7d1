"""Run the up-projections and rotary embedding of latent attention again."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "mla_up_proj",
    RecomputePolicy(module="mla_up_proj"),
    summary="Run the up-projections and rotary embedding of latent attention again.",
    source="megatron-lm",
)
