"""MXFP8: E4M3 with one E8M0 scale per 32 values."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "mxfp8",
    Recipe("mxfp8", 1.03125, 1.03125, 4.0625, 1, 2.0625, wgrad_rate="mxfp8-wgrad"),
    summary="MXFP8: E4M3 with one E8M0 scale per 32 values.",
    source="transformer-engine",
)
