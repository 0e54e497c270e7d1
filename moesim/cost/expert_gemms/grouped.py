"""One kernel over all experts, which reads on the GPU where the rows of each begin."""

from moesim.base.numeric import Numeric
from moesim.cost.expert_gemms import ExpertGemm, expert_gemms
from moesim.cost.grouped import grouped_gemm_time, skewed
from moesim.cost.machine import Gpu
from moesim.workload.ops import Gemm


def grouped(work: Gemm, gpu: Gpu) -> Numeric:
    """Time of a grouped GEMM; experts of different sizes pay for the tiles and weights that they have. [s]"""
    return grouped_gemm_time(work, gpu, skewed(work))


expert_gemms.add(
    "grouped",
    ExpertGemm(grouped),
    summary="One kernel over all experts, offsets on the GPU (CUTLASS, torch._grouped_mm).",
    source="olmo-core-report",
)
