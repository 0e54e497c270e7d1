"""Replays: identity, what-if, ranks beside each other."""

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.studies.trace_machine import machine_of, trace_machine
from moesim.studies.trace_replay import Replayed, in_place_busy, scaled
from moesim.studies.trace_summary import works
from moesim.studies.trace_whatif import changed_machine, repriced
from moesim.traces.opening import read_timeline
from moesim.traces.ranks import across
from moesim.traces.summary import device_summary, work_of

SYNC = {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 7}


@pytest.fixture
def step(made):
    """A step: compute, a collective behind it on another stream, compute that waits for the collective, and a sync."""
    made.kernel("sgemm", 10, 100, launch=2)
    made.add("cuda_runtime", "cudaEventRecord", 4, 1, correlation=5)
    made.add("cuda_runtime", "cudaStreamWaitEvent", 5, 1, correlation=6)
    wait = {**SYNC, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 5}
    made.add("cuda_sync", "Stream Wait Event", 6, 1, tid=20, pid=0, stream=20, correlation=6, device=0, **wait)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 111, 200, stream=20, launch=7)
    made.add("cuda_runtime", "cudaEventRecord", 8.5, 0.5, correlation=7)
    made.add("cuda_runtime", "cudaStreamWaitEvent", 9, 0.5, correlation=8)
    made.add("cuda_sync", "Stream Wait Event", 9, 1, tid=7, pid=0, stream=7, correlation=8, device=0, **SYNC)
    made.kernel("sgemm", 312, 50, launch=9.7)
    made.add("cuda_runtime", "cudaDeviceSynchronize", 12, 353, correlation=9)
    made.kernel("sgemm", 375, 10, launch=370)
    return work_of(read_timeline(made.write()))


def test_the_same_durations_give_the_same_timeline(step):
    one = Replayed.of([step]).replay(scaled([step], {})).devices[0]
    assert one.measured_window_s == pytest.approx(375e-6)
    assert one.identity_window_s == pytest.approx(one.measured_window_s, rel=1e-9)
    assert one.window_s == one.identity_window_s
    assert one.busy_s == pytest.approx(one.measured_busy_s) == pytest.approx(one.replayed_busy_s)


def test_what_waits_for_a_collective_moves_with_it(step):
    found = Replayed.of([step]).replay(scaled([step], {"communication": "0"}))
    # 200 us of communication go; events, syncs and the launch behind the sync move with it
    assert found.replayed_s == pytest.approx(175e-6, abs=2e-6)
    assert found.devices[0].busy_s == pytest.approx(160e-6)
    assert found.critical_s["gemm"] == pytest.approx(160e-6)
    assert sum(found.measured_critical_s.values()) == pytest.approx(383e-6)


def test_the_host_can_be_scaled(step):
    found = Replayed.of([step]).replay(scaled([step], {"host": "0.5"}))
    assert 370e-6 < found.replayed_s < 375e-6


@pytest.mark.parametrize("name", ["gemm", "all", "kernels", "communication", "host"])
def test_longer_durations_never_shorten_a_step(step, name):
    graph = Replayed.of([step])
    times = [graph.replay(scaled([step], {name: str(factor)})).replayed_s for factor in (0, 0.3, 1, 1.7, 4)]
    assert times == sorted(times)


def test_half_of_all_halves_the_busy_time(step):
    found = Replayed.of([step]).replay(scaled([step], {"kernels": "0.5"})).devices[0]
    assert found.busy_s == pytest.approx(found.measured_busy_s / 2)


def test_overlapping_kernels_keep_their_overlap(made):
    made.kernel("a", 10, 100, launch=2)
    made.kernel("b", 90, 100, launch=4)  # starts while the one before ends, on one stream
    work = work_of(read_timeline(made.write()))
    graph = Replayed.of([work])
    assert graph.replay(scaled([work], {})).devices[0].identity_window_s == pytest.approx(180e-6)
    assert graph.replay(scaled([work], {"kernels": "2"})).devices[0].window_s == pytest.approx(360e-6)


def test_waits_are_guessed_where_the_file_has_no_records_of_them(made):
    made.kernel("sgemm", 10, 100, launch=2)
    made.kernel("ncclDevKernel_Generic(x)", 125, 300, stream=4, launch=4)  # 15 us behind, as on ROCm
    made.kernel("sgemm", 442, 50, launch=6)
    made.kernel("sgemm", 493, 50, launch=8)
    work = work_of(read_timeline(made.write()))
    found = Replayed.of([work]).replay(scaled([work], {"communication": "0"}))
    assert found.replayed_s == pytest.approx(233e-6, abs=1e-6)


def test_moments_are_stretched_by_the_slowest():
    start, end = np.array([0, 5, 20]), np.array([10, 15, 30])
    assert in_place_busy(start, end, np.array([1.0, 0.0, 1.0])) == 20
    assert in_place_busy(start, end, np.array([2.0, 1.0, 0.5])) == 30


@pytest.mark.parametrize(
    ("scales", "line"),
    [
        ({"gem": "0.5"}, "--scale gem: the trace has no such class; did you mean 'gemm'"),
        ({"gemm": "fast"}, "--scale gemm: 'fast' is no factor"),
        ({"gemm": "-1"}, "--scale gemm: '-1' is no factor"),
    ],
)
def test_bad_scales(step, scales, line):
    with pytest.raises(SpecError, match=line):
        scaled([step], scales)


def rank(made, number, arrives, ends):
    made.events = []
    made.head["distributedInfo"] = {"rank": number, "world_size": 2}
    told = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float"}
    made.kernel("sgemm", 10, arrives - 12, launch=2)
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    made.kernel(name, arrives, ends - arrives, stream=20, launch=4, **told, **{"Group size": 2})
    return work_of(read_timeline(made.write(f"rank{number}.json")))


def test_ranks_wait_for_the_last_one(made):
    both = [rank(made, 0, 100, 500), rank(made, 1, 400, 502)]
    beside = across(both)
    (match,) = beside.matches
    assert (match.last, match.size, match.complete) == (1, 4000, True)
    assert [match.waiting_s(0), match.moved_s(0), match.moved_s(1)] == pytest.approx([300e-6, 100e-6, 102e-6])
    assert match.transfer_s == pytest.approx(100e-6)
    graph = Replayed.of(both, beside)
    same = graph.replay(scaled(both, {})).devices
    assert [one.identity_window_s for one in same] == pytest.approx([490e-6, 492e-6])
    faster = graph.replay(scaled(both, {"gemm": "0.5"})).devices
    # the compute of the slower rank sets both: 388 us become 194
    assert [one.window_s for one in faster] == pytest.approx([296e-6, 298e-6], abs=3e-6)


def test_a_clock_that_is_ahead_is_set_back(made):
    made.head["distributedInfo"] = {"rank": 0}
    ranks = []
    for number, ahead in ((0, 0.0), (1, 0.0), (2, 700.0)):
        made.events = []
        made.head["distributedInfo"] = {"rank": number}
        for index in range(5):
            start = 1000 * index + ahead + 20 * number
            made.kernel("ncclDevKernel_SendRecv", start, 1000 * index + ahead + 300 - start)
        ranks.append(work_of(read_timeline(made.write(f"r{number}.json"))))
    found = across(ranks)
    assert len(found.matches) == 5
    assert found.ranks[2].clock_offset_s == pytest.approx(700e-6)
    assert all(match.end_spread_s < 1e-9 and match.last == 2 for match in found.matches)


SHAPES = {"Input Dims": [[8192, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
DEVICE = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}


@pytest.fixture
def priced(made):
    made.head |= DEVICE
    made.add("cpu_op", "aten::mm", 0, 20, **{"External id": 900}, **SHAPES)
    made.kernel("nvjet_tst", 30, 420, launch=5, external=900)
    made.kernel("nvjet_of_a_custom_op", 460, 100, launch=15)
    told = {"Collective name": "allreduce", "In msg nelems": 2**27, "Out msg nelems": 2**27, "dtype": "BFloat16"}
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    made.kernel(name, 570, 1000, stream=20, launch=20, **told, **{"Group size": 8})
    return work_of(read_timeline(made.write()))


def test_another_precision_reprices_matrix_products(priced):
    machine = trace_machine([priced], None)
    factors = repriced([priced], machine, machine, "fp8")
    shaped, unknown, collective = factors.works[0]
    assert 0.45 < shaped < 0.8
    assert unknown == pytest.approx(shaped)  # the middle factor of its class
    assert collective == 1
    assert "gemm: 1 kernels of unknown shape take the middle factor of its kind" in factors.notes[0]


def test_constants_reprice_what_they_bound(priced):
    machine = trace_machine([priced], None)
    faster = changed_machine(machine, {"nvlink_bandwidth": "2x"})
    gemm, _, collective = repriced([priced], machine, faster).works[0]
    assert gemm == 1
    assert 0.45 < collective < 0.7
    wider = changed_machine(machine, {"memory_bandwidth": "6.7 TB/s"})
    assert float(wider.gpu.memory_bandwidth / machine.gpu.memory_bandwidth) == pytest.approx(2, rel=0.01)
    assert repriced([priced], machine, machine_of("h200-sxm-141gb")).works[0][0] == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nvlink": "2x"}, "known: gemm_rate, memory_bandwidth, nic_bandwidth, nvlink_bandwidth"),
        ({"nvlink_bandwidth": "fast"}, "write for example 2x, or 900 GB/s"),
        ({"gemm_rate": "0x"}, "'0x' is no positive factor"),
    ],
)
def test_bad_constants(priced, changes, line):
    with pytest.raises(SpecError, match=line):
        changed_machine(trace_machine([priced], None), changes)


def test_identity_and_sanity_on_public_traces(shared_traces):
    for path in sorted((shared_traces / "kineto").glob("*.json.gz")):
        if path.name.startswith(("hta_a100x8", "param_2080ti", "hta_v100")):
            continue  # the larger ones: minutes of the whole suite
        with works([path]) as read:
            if not read[0].table.devices:
                continue
            graph = Replayed.of(read)
            none = graph.replay(scaled(read, {"communication": "0"})).devices
            half = graph.replay(scaled(read, {"all": "0.5"})).devices
            for one, other in zip(none, half, strict=True):
                times = device_summary(read[0], one.device)
                assert one.identity_window_s == pytest.approx(one.measured_window_s, rel=1e-6)
                assert one.busy_s == pytest.approx(times.busy_s - times.exposed_strict_s, abs=1e-9)
                assert other.busy_s == pytest.approx(times.busy_s / 2)
                assert one.window_s <= times.window_s * (1 + 1e-9)
