"""A batched product of equal sizes: every expert is filled up to its capacity."""

from moesim.cost.expert_gemms import ExpertGemm, expert_gemms
from moesim.cost.gemm import gemm_time

expert_gemms.add(
    "padded",
    ExpertGemm(gemm_time, padded=True),
    summary="Batched GEMM over experts filled up to capacity_factor: no shapes that depend on data, wasted rows.",
    source="olmo-core-report",
)
