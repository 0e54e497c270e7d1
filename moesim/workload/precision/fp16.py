"""FP16 everywhere, FP32 accumulation, loss scaling."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "fp16",
    Recipe("fp16"),
    summary="FP16 everywhere, FP32 accumulation, loss scaling.",
    source="megatron-lm",
)
