"""Keep each layer's input only; run the layer again before its backward."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "full",
    RecomputePolicy(module="full", whole_layer=True),
    summary="Keep each layer's input only; run the layer again before its backward.",
    source="megatron-lm",
)
