"""FP8 in blocks of 128 (DeepSeek-V3), FP32 scales."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "fp8-blockwise",
    Recipe("fp8-blockwise", 1.03125, 1.03125, 4.125, 1, 2.0625),
    summary="FP8 in blocks of 128 (DeepSeek-V3), FP32 scales.",
    source="transformer-engine",
)
