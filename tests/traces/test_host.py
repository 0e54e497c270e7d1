"""Gaps of a GPU by what it waits for, calls that wait for the GPU, steps."""

import pytest

from moesim.traces.host import host_time, steps
from moesim.traces.opening import read_timeline
from moesim.traces.summary import device_summary, work_of


@pytest.fixture
def work(made):
    made.kernel("before", 0, 100)
    made.kernel("queued", 110, 90, launch=50)  # launched in time: its gap of 10 us is no fault of the host
    made.kernel("late", 250, 50, launch=240)  # 40 us before its launch, 10 us of latency
    made.kernel("beside", 260, 20, stream=20, launch=245)
    made.kernel("unknown", 400, 10)
    made.add("cuda_runtime", "cudaStreamSynchronize", 300, 60)
    made.add("cuda_runtime", "cudaDeviceSynchronize", 350, 70)
    made.add("cuda_runtime", "cudaStreamWaitEvent", 500, 70)
    made.add("user_annotation", "ProfilerStep#7", 40, 150)
    made.add("gpu_user_annotation", "ProfilerStep#7", 110, 190, tid=7, pid=0)
    made.add("user_annotation", "ProfilerStep#8", 190, 300)
    return work_of(read_timeline(made.write()))


def test_gaps_are_told_apart(work):
    found = host_time(work, 0)
    assert found.gaps == 3
    told = [found.host_bound_s, found.launch_s, found.unknown_s, found.gap_s]
    assert told == pytest.approx([40e-6, 20e-6, 100e-6, 160e-6])
    assert found.gap_s == pytest.approx(device_summary(work, 0).idle_s)
    assert found.host_bound == pytest.approx(40 / 410)
    assert found.launch_delay_s == pytest.approx(15e-6)


def test_calls_that_wait_for_the_gpu(work):
    found = host_time(work, 0)
    assert found.syncs == 2
    assert found.sync_s == pytest.approx(120e-6)  # they overlap on two threads for 10 us


def test_steps_take_the_work_that_they_launched(work):
    first, second = steps(work, 0)
    assert [first.number, second.number] == [7, 8]
    assert [first.kernels, second.kernels] == [1, 2]
    assert [first.busy_s, second.busy_s, second.host_s] == pytest.approx([90e-6, 50e-6, 300e-6])
