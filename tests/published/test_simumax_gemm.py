"""Products on the B200 machine of SimuMax's runs, as its authors measured them for their own simulator.

configs/system/b200_bf16_ceperm.json of SimuMax 1.2 prints shares of 2,250 TFLOP/s; the rows are those of Llama 3 70B at every
degree of tensor parallelism and of DeepSeek-V2. That machine runs them at less than three quarters of the rate that the B200
was calibrated with, which the profile of these runs says by its ``sustained`` rates.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

from moesim.cost.from_spec import build_gpu, sustained_gpu
from moesim.cost.gemm import gemm_time
from moesim.spec import library
from moesim.workload.ops import Gemm

with Path(__file__).with_name("simumax_gemm.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def ratios(gpu):
    """Predicted over measured times. [-]"""
    found = []
    for row in ROWS:
        work = Gemm(float(row["m"]), float(row["n"]), float(row["k"]), accumulate=row["accumulate"] == "1")
        found.append(float(gemm_time(work, gpu)) * float(row["share_of_2250"]) * 2250e12 / work.flop)
    return np.array(found)


def test_the_sustained_rate_is_what_its_products_have():
    software = library.get("software", "simumax-bench")
    plain = build_gpu(library.get("gpus", "b200-sxm"))
    assert software.sustained.tensor.value == pytest.approx(np.median(ratios(plain)), abs=0.01)
    kept = ratios(sustained_gpu(plain, software))
    assert np.median(kept) == pytest.approx(1, abs=0.04)
    assert 0.85 < np.quantile(kept, 0.1) < np.quantile(kept, 0.9) < 1.35
