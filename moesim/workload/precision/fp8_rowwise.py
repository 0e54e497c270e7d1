"""FP8 per row, cast on the fly from BF16 activations (torchao)."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "fp8-rowwise",
    Recipe("fp8-rowwise", 1.0, 2.0, 6.0, 2, 0.0),
    summary="FP8 per row, cast on the fly from BF16 activations (torchao).",
    source="torchao",
)
