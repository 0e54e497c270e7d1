"""FP8 per tensor, scales from the history of maxima."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "fp8-delayed",
    Recipe("fp8", 1.0, 1.0, 4.0, 1, 2.0, beside_output_bytes=1.0),
    summary="FP8 per tensor, scales from the history of maxima.",
    source="transformer-engine",
)
