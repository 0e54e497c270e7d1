"""Time of matrix products: limits, monotonicity, scalar and array."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.cost.gemm import gemm_time
from moesim.workload.ops import Gemm

SIZES = st.integers(1, 20_000)


def rate(work, gpu):
    return float(work.flop / gemm_time(work, gpu))


def test_a_huge_product_runs_at_the_efficiency_of_its_best_tile(gpu):
    kernels = gpu.kernels
    for n in (8192, 16_384, 32_768):
        work = Gemm(n, n, n)
        slowdown = 1 + kernels.gemm_power_slope * np.log10(work.flop / kernels.gemm_power_onset)
        best = gpu.rates["bf16"] * kernels.gemm_efficiency / (1 + kernels.gemm_tile_penalty) / slowdown
        assert 0.95 * best < rate(work, gpu) <= best


def test_a_thin_product_runs_at_the_bandwidth(gpu):
    # one row against a large matrix: the matrix is read once and hardly anything is computed
    work = Gemm(1, 32_768, 32_768)
    streaming = work.hbm_bytes / (gpu.memory_bandwidth * gpu.kernels.gemm_memory_efficiency)
    assert gemm_time(work, gpu) == pytest.approx(streaming, rel=0.03)
    assert gemm_time(work, gpu) > streaming


def test_a_tiny_product_takes_the_fixed_time_and_one_wave(gpu):
    assert gpu.kernels.gemm_fixed < gemm_time(Gemm(1, 1, 1), gpu) < gpu.kernels.gemm_fixed + 2e-6


def test_a_wave_by_hand(gpu):
    """One tile of 64 x 64 in each SM, k long enough that nothing is gained by splitting it."""
    plain = replace(gpu, kernels=replace(gpu.kernels, gemm_fixed=0.0, gemm_norm=1.0, gemm_power_slope=0.0))
    work = Gemm(64, 64, 64, groups=132)
    efficiency = gpu.kernels.gemm_efficiency / (1 + gpu.kernels.gemm_tile_penalty * 256 / 64)
    wave = 2 * 64 * 64 * (64 + gpu.kernels.gemm_prologue) / (gpu.rates["bf16"] / 132 * efficiency)
    memory = 132 * 3 * 2 * 64 * 64 / (gpu.memory_bandwidth * gpu.kernels.gemm_memory_efficiency)
    assert gemm_time(work, plain) == pytest.approx(wave + memory, rel=1e-12)


def test_a_long_product_of_one_tile_is_split_over_the_gpu(gpu):
    """Eight parts of k, each on its own SM, then a pass that adds their FP32 results."""
    plain = replace(gpu, kernels=replace(gpu.kernels, gemm_fixed=0.0, gemm_norm=1.0, gemm_power_slope=0.0))
    k = 2**20
    work = Gemm(64, 64, k)
    efficiency = gpu.kernels.gemm_efficiency / (1 + gpu.kernels.gemm_tile_penalty * 256 / 64)
    wave = 2 * 64 * 64 * (k / 8 + gpu.kernels.gemm_prologue) / (gpu.rates["bf16"] / 132 * efficiency)
    bandwidth = gpu.memory_bandwidth * gpu.kernels.gemm_memory_efficiency
    adding = 4 * 9 * 64 * 64 / bandwidth
    assert gemm_time(work, plain) == pytest.approx(wave + adding + work.hbm_bytes / bandwidth, rel=1e-12)


def test_one_more_column_than_a_whole_wave_of_tiles_starts_another(gpu):
    whole, more, fewer = (gemm_time(Gemm(12 * 256, 11 * 256 + extra, 8192), gpu) for extra in (0, 1, -1))
    assert more > 1.05 * whole
    assert fewer > 0.99 * whole


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_a_grouped_product_is_no_faster_than_one_dense_product_of_all_rows(gpu, groups):
    for rows in (64, 200, 1000, 5000):
        grouped = gemm_time(Gemm(rows, 3072, 4096, groups=groups), gpu)
        assert grouped >= gemm_time(Gemm(rows * groups, 3072, 4096), gpu) * (1 - 1e-12)


def test_few_rows_per_expert_are_inefficient(gpu):
    rates = [rate(Gemm(rows, 3072, 4096, groups=16), gpu) for rows in (8, 32, 128, 512, 4096)]
    assert rates == sorted(rates)
    assert rates[0] < 0.15 * rates[-1]


def test_accumulating_into_fp32_costs_its_traffic(gpu):
    work = Gemm(32_768, 32_768, 1)
    assert gemm_time(Gemm(32_768, 32_768, 1, accumulate=True), gpu) > 3 * gemm_time(work, gpu)


@given(m=SIZES, n=SIZES, k=SIZES)
@settings(max_examples=60, deadline=None)
def test_never_faster_than_the_roofline(gpu, m, n, k):
    work = Gemm(m, n, k)
    assert gemm_time(work, gpu) >= work.flop / gpu.rates["bf16"]
    assert gemm_time(work, gpu) >= work.hbm_bytes / gpu.memory_bandwidth


@given(m=SIZES, n=SIZES, k=SIZES, factor=st.floats(1, 10))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ["rates", "memory_bandwidth"])
def test_a_faster_gpu_is_never_slower(gpu, faster, name, m, n, k, factor):
    work = Gemm(m, n, k)
    assert gemm_time(work, faster(**{name: factor})) <= gemm_time(work, gpu) * (1 + 1e-12)


@given(m=SIZES, n=SIZES, k=SIZES)
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("grown", ["m", "n", "k"])
def test_twice_the_work_is_never_faster(gpu, grown, m, n, k):
    sizes = {"m": m, "n": n, "k": k}
    larger = sizes | {grown: 2 * sizes[grown]}
    assert gemm_time(Gemm(**larger), gpu) >= gemm_time(Gemm(**sizes), gpu) * (1 - 1e-12)


def test_the_scalar_time_is_the_entry_of_the_array(gpu, faster):
    generator = np.random.default_rng(3)
    m, n, k = np.floor(10 ** generator.uniform(0, 4.5, (3, 50)))
    groups = np.array([1.0, 8.0] * 25)
    together = np.asarray(gemm_time(Gemm(m, n, k, groups), gpu))
    assert together.shape == (50,)
    for index in range(50):
        alone = gemm_time(Gemm(m[index], n[index], k[index], groups[index]), gpu)
        assert alone == pytest.approx(together[index], rel=1e-13)


@pytest.mark.parametrize("name", ["rates", "memory_bandwidth", "num_sms"])
def test_any_constant_may_be_an_array(gpu, faster, name):
    factors = np.array([1.0, 1.5, 2.0])
    together = gemm_time(Gemm(2048, 4096, 512), faster(**{name: factors}))
    alone = [gemm_time(Gemm(2048, 4096, 512), faster(**{name: factor})) for factor in factors]
    assert np.asarray(together) == pytest.approx(np.array(alone), rel=1e-13)
