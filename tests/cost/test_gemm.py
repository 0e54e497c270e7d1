"""Time of matrix products: limits, monotonicity, scalar and array."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.cost.gemm import gemm_time
from moesim.cost.tiles import tile_rate, traffic
from moesim.workload.ops import Gemm

SIZES = st.integers(1, 20_000)


def rate(work, gpu):
    return float(work.flop / gemm_time(work, gpu))


def test_a_huge_product_runs_at_the_sustained_rate(gpu):
    for n in (8192, 16_384, 32_768):
        work = Gemm(n, n, n)
        assert 0.93 * tile_rate(work, gpu) < rate(work, gpu) <= tile_rate(work, gpu)


def test_a_thin_product_runs_at_the_bandwidth(gpu):
    # one row against a large matrix: the matrix is read once and hardly anything is computed
    work = Gemm(1, 32_768, 32_768)
    streaming = 2 * 32_768**2 / (gpu.memory_bandwidth * gpu.kernels.gemm_memory_efficiency)
    assert gemm_time(work, gpu) == pytest.approx(streaming, rel=0.03)
    assert gemm_time(work, gpu) > streaming


def test_a_tiny_product_takes_the_fixed_time_and_one_wave(gpu):
    assert gpu.kernels.gemm_fixed < gemm_time(Gemm(1, 1, 1), gpu) < gpu.kernels.gemm_fixed + 2e-6


def plain(gpu, **constants):
    """Compute and memory one after the other, no fixed time, no power limit, whole waves, nothing held in the L2."""
    neutral = {"gemm_fixed": 0.0, "gemm_norm": 1.0, "gemm_power_slope": 0.0, "gemm_wave_smoothing": 0.0}
    neutral |= {"gemm_input_speedup": 1.0, "gemm_output_speedup": 1.0, "gemm_split_fixed": 0.0}
    return replace(gpu, kernels=replace(gpu.kernels, **(neutral | constants)))


def test_a_wave_by_hand(gpu):
    """One tile of 64 x 64 in each SM, k too short to cut."""
    kernels = gpu.kernels
    work = Gemm(64, 64, 64, groups=132)
    tile = 2 * 64 * 64 * kernels.gemm_small_tile_penalty / (gpu.rates["bf16"] * kernels.gemm_efficiency / 132)
    memory = 132 * 3 * 2 * 64 * 64 / (gpu.memory_bandwidth * kernels.gemm_memory_efficiency)
    expected = tile * (64 + kernels.gemm_prologue) + memory
    assert gemm_time(work, plain(gpu)) == pytest.approx(expected, rel=1e-12)


def test_a_long_product_of_one_tile_is_split_over_the_gpu(gpu):
    """Sixteen parts of k, each on its own SM, faster while the others idle, and the traffic of their FP32 results."""
    kernels, k = gpu.kernels, 2**20
    work = Gemm(64, 64, k)
    tile = 2 * 64 * 64 * kernels.gemm_small_tile_penalty / (gpu.rates["bf16"] * kernels.gemm_efficiency / 132)
    bandwidth = gpu.memory_bandwidth * kernels.gemm_memory_efficiency
    adding = kernels.gemm_reduction * 4 * 17 * 64 * 64 / bandwidth
    tile *= 1 - kernels.gemm_idle_gain * (1 - 16 / 132)  # the other SMs are idle
    expected = tile * (k / 16 + kernels.gemm_prologue) + adding + work.hbm_bytes / bandwidth
    assert gemm_time(work, plain(gpu)) == pytest.approx(expected, rel=1e-12)


def test_a_warm_input_is_read_faster_than_a_cold_weight(gpu):
    tall, wide = Gemm(8192, 64, 1536), Gemm(64, 8192, 1536)
    assert tall.hbm_bytes == wide.hbm_bytes
    assert gemm_time(tall, gpu) < 0.8 * gemm_time(wide, gpu)
    assert gemm_time(Gemm(65_536, 64, 8192), gpu) == pytest.approx(gemm_time(Gemm(64, 65_536, 8192), gpu), rel=0.02)


def test_a_million_shapes_are_priced_as_each_alone(gpu):
    generator = np.random.default_rng(4)
    m, n, k = np.floor(10 ** generator.uniform(1.8, 4.5, (3, 40_000)))
    together = np.asarray(gemm_time(Gemm(m, n, k), gpu))
    for index in (0, 16_383, 16_384, 39_999):
        assert together[index] == pytest.approx(gemm_time(Gemm(m[index], n[index], k[index]), gpu), rel=1e-13)


def test_one_more_column_than_a_whole_wave_of_tiles_starts_another(gpu):
    whole, more = (gemm_time(Gemm(12 * 256, 11 * 256 + extra, 8192), plain(gpu)) for extra in (0, 1))
    assert more > 1.05 * whole
    smooth = plain(gpu, gemm_wave_smoothing=1.0)
    assert gemm_time(Gemm(12 * 256, 11 * 256 + 1, 8192), smooth) < 1.001 * gemm_time(
        Gemm(12 * 256, 11 * 256, 8192), smooth
    )


def test_accumulating_into_fp32_costs_its_traffic(gpu):
    work = Gemm(32_768, 32_768, 1)
    assert gemm_time(replace(work, accumulate=True), gpu) > 2.5 * gemm_time(work, gpu)


@given(m=SIZES, n=SIZES, k=SIZES)
@settings(max_examples=60, deadline=None)
def test_never_faster_than_the_roofline(gpu, m, n, k):
    work = Gemm(m, n, k)
    assert gemm_time(work, gpu) >= work.flop / gpu.rates["bf16"]
    assert gemm_time(work, gpu) >= traffic(work, gpu) / gpu.memory_bandwidth
    assert gemm_time(work, gpu) >= 2 * k * n / gpu.memory_bandwidth  # weights are cold


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
