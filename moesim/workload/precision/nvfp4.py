"""NVFP4: E2M1 with an E4M3 scale per 16 values, random Hadamard transform on wgrad operands."""

from moesim.workload.precision import Recipe, recipes

recipes.add(
    "nvfp4",
    Recipe("nvfp4", 0.5625, 0.5625, 3.125, 2, 1.125),
    summary="NVFP4: E2M1 with an E4M3 scale per 16 values, random Hadamard transform on wgrad operands.",
    source="transformer-engine",
)
