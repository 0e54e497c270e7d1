"""Time of kernels that only move bytes."""

import numpy as np
import pytest

from moesim.cost.memory_bound import traffic_time


def test_nothing_to_move_takes_no_time(gpu):
    assert traffic_time(0.0, gpu) == 0


def test_a_large_copy_reaches_the_published_bandwidth(gpu):
    assert 2.9e12 < 1e9 / traffic_time(1e9, gpu) < 3.05e12


def test_a_small_kernel_takes_its_ramp(gpu):
    assert traffic_time(1.0, gpu) == pytest.approx(gpu.kernels.memory_fixed, rel=1e-6)


def test_more_bandwidth_is_never_slower(gpu, faster):
    sizes = np.array([0.0, 1.0, 1e3, 1e6, 1e9])
    times = [traffic_time(sizes, faster(memory_bandwidth=factor)) for factor in (1, 2, 10)]
    assert (times[0] >= times[1]).all()
    assert (times[1] >= times[2]).all()
    assert [traffic_time(size, gpu) for size in sizes] == times[0].tolist()


def test_what_the_l2_holds_moves_faster(gpu):
    kernels = gpu.kernels
    inside, outside = 0.2 * gpu.l2_capacity * kernels.memory_l2, 20 * gpu.l2_capacity
    rates = [size / (traffic_time(size, gpu) - kernels.memory_fixed) for size in (inside, outside)]
    assert rates[0] / rates[1] == pytest.approx(kernels.memory_l2_speedup, rel=1e-3)
