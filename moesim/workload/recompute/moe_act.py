"""Run the activation between the expert GEMMs again."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "moe_act",
    RecomputePolicy(module="moe_act"),
    summary="Run the activation between the expert GEMMs again.",
    source="megatron-lm",
)
