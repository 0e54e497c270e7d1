"""Time of kernels that only move bytes."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.calibrate.points import points
from moesim.cost.from_spec import build_gpu
from moesim.cost.memory_bound import traffic_time
from moesim.spec import library
from moesim.studies.step_factors import at_factors


def test_nothing_to_move_takes_no_time(gpu):
    assert traffic_time(0.0, gpu) == 0


def test_a_large_copy_reaches_the_published_bandwidth(qwen):
    """Alone: what a step sustains of it is another matter."""
    assert 2.9e12 < 1e9 / traffic_time(1e9, at_factors(qwen, {}).machine.gpu) < 3.05e12


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
    slower = kernels.memory_opening_slowdown
    steady = 1 + slower * kernels.memory_opening / 20
    assert rates[0] / rates[1] == pytest.approx(steady / (1 / kernels.memory_l2_speedup + slower), rel=2e-3)


@pytest.mark.parametrize("name", ["b200-sxm", "gb200", "b300", "gb300", "h100-sxm-80gb", "h200-sxm-141gb"])
def test_large_kernels_take_what_was_measured(name):
    frame, _ = points("memory")
    gpu = build_gpu(library.get("gpus", name))
    large = frame[(frame["gpu"] == name) & (frame["bytes"] > 1e8)]
    assert large["bytes"].max() > 6e9
    errors = traffic_time(large["bytes"].to_numpy(dtype=float), gpu) / large["time_s"].to_numpy() - 1
    assert np.abs(errors).max() < 0.06


def test_a_slow_opening_is_paid_once(gpu):
    kernels = replace(gpu.kernels, memory_opening=2.0, memory_opening_slowdown=0.5)
    slow = replace(gpu, kernels=kernels)
    even = replace(gpu, kernels=replace(kernels, memory_opening_slowdown=0.0))
    lost = [
        traffic_time(size * gpu.l2_capacity, slow) - traffic_time(size * gpu.l2_capacity, even) for size in (20, 80)
    ]
    assert lost[0] == pytest.approx(lost[1], rel=1e-3)
    assert lost[1] == pytest.approx(gpu.l2_capacity / gpu.memory_bandwidth / kernels.memory_efficiency, rel=1e-3)
