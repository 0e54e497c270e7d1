"""A loop of the host over the experts: one product each, launched when the host knows its size."""

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.expert_gemms import ExpertGemm, expert_gemms
from moesim.cost.gemm import gemm_time
from moesim.cost.grouped import looped_gemm_time
from moesim.cost.machine import Gpu
from moesim.workload.ops import Gemm


def looped(work: Gemm, gpu: Gpu) -> Numeric:
    """Time of one product after the other; experts without rows have none. [s]"""
    if work.spread is None:
        return looped_gemm_time(work, gpu)
    total: Numeric = 0.0
    for rows in work.m * work.spread:  # one expert; its rows may be a batch, as the constants of the GPU may
        each = gemm_time(replace(work, m=np.maximum(rows, 1.0), groups=1, spread=None), gpu)
        total = total + np.where(rows > 0, each, 0.0)
    return total


expert_gemms.add(
    "loop",
    ExpertGemm(looped, kernel_each=True, host_counts=True),
    summary="One GEMM for each expert, launched by the host once it knows the row counts.",
    source="olmo-core-report",
)
