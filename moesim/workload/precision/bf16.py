"""BF16 everywhere, FP32 accumulation."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "bf16",
    Recipe("bf16"),
    summary="BF16 everywhere, FP32 accumulation.",
    source="megatron-lm",
)
