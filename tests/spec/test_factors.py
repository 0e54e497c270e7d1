"""Numbers changed by a factor on the one in use."""

import pytest

from moesim.base.errors import SpecError
from moesim.evaluator import step_times_of
from moesim.spec.factors import factor_of


def step(problem):
    return step_times_of(problem, [problem.strategy])[0]


@pytest.mark.parametrize(
    "path",
    [
        "gpu.memory_bandwidth",
        "nic.bandwidth",
        "node.links.nvlink_usable_bandwidth",
        "fabric.latency",
        "gpu.kernels.gemm_efficiency",
        "software.host.device_sync",
        "transports.deepep.inter_dispatch_rdma_bandwidth",
    ],
)
def test_a_factor_of_one_is_neutral(qwen, path):
    """Also where a calibration is laid over the number of the file."""
    assert step(qwen.with_changes({path: "x1"})) == pytest.approx(step(qwen), rel=1e-9)


def test_a_factor_is_that_of_the_number_in_use(qwen):
    before = qwen.machine.gpu.memory_bandwidth
    changed = qwen.with_changes({"gpu.memory_bandwidth": "x1.25"})
    assert changed.machine.gpu.memory_bandwidth == pytest.approx(1.25 * before)
    again = changed.with_changes({"gpu.memory_bandwidth": "x0.8"})
    assert again.machine.gpu.memory_bandwidth == pytest.approx(before)


def test_what_is_no_factor_is_left_alone():
    assert [factor_of(text) for text in ("x", "1x", "xx2", "x-1", "x1e3")] == [None, None, None, None, 1000.0]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("gpu.memry_bandwidth", "x2", "--set gpu.memry_bandwidth: nothing called 'gpu.memry_bandwidth' has a number; did"),
        ("gpu.memory_bandwidth", "x0", "--set gpu.memory_bandwidth: 0 is out of range"),
        ("ep", "x2", "--set ep: must be a valid integer, not 'x2'"),
    ],
)  # fmt: skip
def test_a_factor_on_nothing_is_refused(qwen, path, value, line):
    with pytest.raises(SpecError) as error:
        qwen.with_changes({path: value})
    assert [str(issue).startswith(line) for issue in error.value.issues] == [True], error.value
