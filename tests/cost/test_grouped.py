"""Time of grouped products: weights, tiles of few rows, alternatives."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.from_spec import build_gpu
from moesim.cost.gemm import gemm_time
from moesim.cost.grouped import HEIGHTS, Skewed, grouped_gemm_time, looped_gemm_time
from moesim.spec import library
from moesim.workload.ops import Gemm


def rate(work, gpu):
    return float(work.flop / grouped_gemm_time(work, gpu))


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_a_grouped_product_is_hardly_faster_than_one_dense_product_of_all_rows(gpu, groups):
    for rows in (64, 200, 1000, 5000):
        grouped = grouped_gemm_time(Gemm(rows, 3072, 4096, groups=groups), gpu)
        assert grouped >= 0.85 * gemm_time(Gemm(rows * groups, 3072, 4096), gpu)


def test_few_rows_per_expert_are_inefficient(gpu):
    rates = [rate(Gemm(rows, 3072, 4096, groups=16), gpu) for rows in (8, 32, 128, 512, 4096)]
    assert rates == sorted(rates)
    assert rates[0] < 0.15 * rates[-1]


def test_few_rows_cost_the_weights_of_the_experts_at_work(gpu):
    kernels = gpu.kernels
    work = Gemm(0.25, 4096, 4096, groups=64)  # 16 rows: 16 of the experts
    weights = 16 * 2 * 4096**2 / (gpu.memory_bandwidth * kernels.grouped_gemm_memory_efficiency)
    assert grouped_gemm_time(work, gpu) - kernels.grouped_gemm_fixed == pytest.approx(weights, rel=0.2)


def test_skewed_groups_pay_for_the_tiles_and_weights_that_they_have(gpu):
    work = Gemm(64, 4096, 8192, 64)
    sizes = np.array([64] * 64), np.array([33] * 32 + [95] * 32), np.array([4096, *[0] * 63])
    skews = [Skewed((rows > 0).sum(), {high: np.ceil(rows / high).sum() for high in HEIGHTS}) for rows in sizes]
    even, uneven, one = (grouped_gemm_time(work, gpu, skewed) for skewed in skews)
    assert even == pytest.approx(grouped_gemm_time(work, gpu))
    assert uneven > even  # half of the groups fill a tile and a half
    assert one < 0.6 * even  # only one set of weights is read


def test_a_loop_pays_every_launch_and_padding_pays_every_row(gpu):
    work = Gemm(64, 2048, 2048, groups=32)
    assert looped_gemm_time(work, gpu) > 2 * grouped_gemm_time(work, gpu)
    padded = expert_gemms.get("padded").time
    assert padded(work, gpu) == gemm_time(work, gpu)
    assert padded(replace(work, m=1024), gpu) > 3 * padded(work, gpu)


def test_the_scalar_time_is_the_entry_of_the_array(gpu):
    rows = np.array([0.5, 3.0, 100.0, 5000.0])
    together = grouped_gemm_time(Gemm(rows, 1024, 2048, 8), gpu)
    alone = [grouped_gemm_time(Gemm(one, 1024, 2048, 8), gpu) for one in rows]
    assert np.asarray(together) == pytest.approx(np.array(alone), rel=1e-13)


@pytest.mark.parametrize(
    "name", ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "gb200", "b300", "gb300", "a100-sxm-80gb"]
)
@pytest.mark.parametrize("shape", [(4803, 2533, 2), (4096, 2048, 16), (20480, 8192, 4)])
def test_more_rows_never_take_less_time(name, shape):
    n, k, groups = shape
    rows = np.arange(1.0, 700.0)
    times = np.asarray(grouped_gemm_time(Gemm(rows, n, k, groups=groups), build_gpu(library.get("gpus", name))))
    assert (np.diff(times) >= -1e-9 * times[1:]).all()
