"""FP8 per tensor, scales from the current tensor: one more read for the maximum."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "fp8-current",
    Recipe("fp8", 1.0, 1.0, 6.0, 2, 2.0),
    summary="FP8 per tensor, scales from the current tensor: one more read for the maximum.",
    source="transformer-engine",
)
