"""Operators of a trace beside rooflines and prices; samples for fits; a step beside its estimate; two traces."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from moesim.base.errors import SpecError
from moesim.calibrate import collective_overlay
from moesim.cost.blocks import price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.machine import Group
from moesim.spec import library
from moesim.studies.roofline import step_calls
from moesim.studies.trace_calibration import trace_calibration
from moesim.studies.trace_convert import to_parquet, to_perfetto
from moesim.studies.trace_diff import trace_diff
from moesim.studies.trace_match import Difference, trace_match
from moesim.studies.trace_ops import price_of, traced_ops
from moesim.studies.trace_samples import collective_samples, kernel_samples
from moesim.studies.trace_summary import works
from moesim.traces.event_table import Detail
from moesim.traces.matrix_shapes import MatrixShape
from moesim.traces.op_work import attention_shape, moved_shape, shape_of
from moesim.traces.opening import read_timeline
from moesim.traces.ranks import across
from moesim.traces.summary import summaries, work_of
from moesim.workload.ops import AttentionCore, Gemm

BF16 = "c10::BFloat16"
H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]


class Step:
    """Operators, their launches and kernels, one after the other."""

    def __init__(self, made):
        self.made, self.now, self.number = made, 100.0, 5000
        made.head["deviceProperties"] = H100

    def op(self, name, dims, kernel, dur, dtype=BF16, **more):
        self.number += 1
        told = {"External id": self.number, "Input Dims": dims, "Input type": [dtype] * len(dims)}
        self.made.add("cpu_op", name, self.now - 60, 20, **told, **more)
        self.made.kernel(kernel, self.now, dur, launch=self.now - 50, external=self.number)
        self.now += dur + 5

    def work(self, name="made.json"):
        return work_of(read_timeline(self.made.write(name)))


@pytest.fixture
def step(made):
    return Step(made)


SIZES = [(4096, 4096, 4096), (8192, 4096, 4096), (4096, 8192, 1024), (8192, 8192, 8192), (2048, 4096, 8192)]
SIZES += [(16384, 1024, 4096), (1024, 16384, 2048), (12288, 4096, 2048)]


def products(step, slower=1.0):
    for m, n, k in SIZES:
        price = price_of(MatrixShape("mm", 1, m, n, k, BF16), "h100-sxm-80gb")
        assert price is not None
        for _ in range(2):
            step.op("aten::mm", [[m, k], [k, n]], "nvjet_tst_TNN", round(1e6 * price.time_s * slower, 3))


def test_matrix_products_stand_beside_roofline_and_price(step):
    products(step, slower=1.25)
    found = traced_ops([step.work()], family="gemm")
    assert (found.gpu, len(found.ops)) == ("h100-sxm-80gb", len(SIZES))
    for one in found.ops:
        assert one.count == 2
        assert one.error == pytest.approx(-0.2, abs=0.01)
        assert 0.3 < (one.roofline_s or 0) / one.median_s < 0.8
    assert sorted(one.flop or 0 for one in found.ops) == sorted(2.0 * m * n * k for m, n, k in SIZES)


def test_outliers_are_named(step):
    step.op("aten::bmm", [[96, 3137, 64], [96, 64, 3137]], "cutlass_75_tensorop_bf16_s1688gemm_nn_align1", 1900)
    step.op("aten::addmm", [[400], [1, 768], [768, 400]], "internal::gemvx::kernel<int>", 5)
    first, second = traced_ops([step.work()]).ops
    assert first.remarks == ("leading dimension is odd: loads of 1 values", "kernel for sm75")
    assert second.remarks == ("matrix-vector product",)
    assert first.flop == 2 * 96 * 3137 * 3137 * 64


def test_shapes_of_attention_and_elementwise_operators():
    dims = "[[2, 16, 512, 64], [2, 4, 512, 64], [2, 4, 512, 64]]"
    flash = attention_shape(
        "aten::_scaled_dot_product_flash_attention",
        Detail(dims=dims, types=json.dumps([BF16]), values='["", "", "", "0.", "True"]'),
    )
    assert flash is not None
    assert (flash.heads, flash.kv_heads, flash.queries, flash.causal) == (16, 4, 512, True)
    assert flash.flop == 2 * 2 * 16 * 512 * 512 / 2 * 128
    copy = moved_shape("aten::copy_", Detail(dims="[[8], [8], []]", types='["float", "c10::Half", "Scalar"]'))
    assert copy is not None
    assert copy.bytes == 8 * 4 + 8 * 2
    assert shape_of("nccl", "aten::mm", Detail()) is None
    assert attention_shape("aten::_flash_attention_forward", Detail(dims="[[1], 2]", types="[]")) is None


def test_an_unknown_class_is_refused(step):
    step.op("aten::mm", [[64, 64], [64, 64]], "nvjet", 5)
    with pytest.raises(SpecError, match="the trace has no class 'gem'; did you mean 'gemm'"):
        traced_ops([step.work()], family="gem")


def test_samples_run_alone_and_are_what_the_library_chooses(step):
    products(step)
    step.op("aten::mm", [[3000, 3000], [3000, 3000]], "cutlass_80_tensorop_s16816gemm_align2", 900)
    busy = step.now
    step.op("aten::mm", [[5120, 5120], [5120, 5120]], "nvjet", 900)
    step.made.kernel("ncclDevKernel_AllGather_RING_LL", busy, 400, stream=20, launch=busy - 40)
    step.made.kernel("nvjet_of_a_custom_op", step.now + 10, 900)
    samples = kernel_samples([step.work()], library.get("gpus", "h100-sxm-80gb"))["gemm"]
    assert len(samples.rows) == len(SIZES)
    assert samples.dropped == {
        "leading dimension is odd: loads of 2 values; kernel for sm80": 1,
        "another kernel runs beside it": 1,
        "no operator in the file tells its shape": 1,
    }


def test_a_slower_gpu_is_calibrated_from_its_trace(step):
    products(step, slower=1.15)
    work = step.work()
    found = trace_calibration([work], None, "h100-sxm-80gb", "the command", ("gemm",))
    (overlay,) = found.overlays
    told = (overlay.family, overlay.source, overlay.command, overlay.rows["used"])
    assert told == ("gemm", "made.json", "the command", len(SIZES))
    before = library.get("gpus", "h100-sxm-80gb").kernels.gemm_efficiency
    assert before is not None
    assert overlay.constants["gemm_efficiency"][0] < before.value
    assert overlay.scores["fitted"].median < 0.08


def test_what_cannot_be_fitted_says_why(step):
    step.op("aten::mm", [[4096, 4096], [4096, 4096]], "nvjet", 200)
    with pytest.raises(SpecError) as refused:
        trace_calibration([step.work()], None, "h100-sxm-80gb", "the command")
    lines = str(refused.value).splitlines()
    assert len(lines) == 4
    assert any("one rank does not tell waiting from transfer" in line for line in lines)


SIZES_OF_GATHERS = [2 ** (22 + place) for place in range(8)]


def gathers(made, times):
    """Two ranks, of which the second arrives 300 us late; from then on the all-gathers take some times. [us]"""
    ranks = []
    for number in range(2):
        made.events = []
        made.head = {"distributedInfo": {"rank": number, "world_size": 2}, "deviceProperties": H100}
        for place, (size, time) in enumerate(zip(SIZES_OF_GATHERS, times, strict=True)):
            told = {"Collective name": "_allgather_base", "In msg nelems": size // 4, "dtype": "BFloat16"}
            told |= {"Out msg nelems": size // 2, "Group size": 2}
            start, end = 5000 * place + 300 * number, round(5000 * place + 300 + time, 3)
            made.kernel("ncclDevKernel_AllGather_RING_LL", start, end - start, stream=20, launch=start - 5, **told)
        ranks.append(work_of(read_timeline(made.write(f"r{number}.json"))))
    return ranks


def test_collectives_count_from_the_last_arrival(made):
    rows, dropped = collective_samples(across(gathers(made, [200.0] * 8)), 8.0, "r")
    assert [row["time"] for row in rows] == pytest.approx([200e-6] * 8)
    assert [row["size"] for row in rows] == SIZES_OF_GATHERS
    assert not dropped


def test_links_are_calibrated_from_ranks_without_their_waiting(made):
    links = collective_overlay.links_of("hgx-h100", None)
    expected = [float(collective_time("all-gather", float(size), Group(2.0, 2.0), links)) for size in SIZES_OF_GATHERS]
    ranks = gathers(made, [1.2e6 * time for time in expected])
    found = trace_calibration(ranks, across(ranks), "h100-sxm-80gb", "the command", ("collectives",))
    (overlay,) = found.overlays
    assert (overlay.family, overlay.gpu, overlay.rows["used"]) == ("collectives", "hgx-h100", 8)
    fits = {name: value for name, (value, _) in overlay.constants.items()}
    slower = replace(links, fits=dict(links.fits) | fits)
    after = [float(collective_time("all-gather", float(size), Group(2.0, 2.0), slower)) for size in SIZES_OF_GATHERS]
    assert [time / before for time, before in zip(after, expected, strict=True)] == pytest.approx([1.2] * 8, rel=0.08)


def test_a_step_is_matched_with_its_estimate(step, small):
    """A trace made of the operations of the estimate, each a tenth slower, and one that the model does not know."""
    calls = [call for call in step_calls(small.plan(), price_blocks(small.plan()), 0) if float(call.priced.seconds)]
    gemms = [call for call in calls if isinstance(call.priced.op.work, Gemm) and call.priced.op.category == "gemm"]
    cores = [call for call in calls if isinstance(call.priced.op.work, AttentionCore)]
    for call in gemms:
        work = call.priced.op.work
        assert isinstance(work, Gemm)
        m, n, k = (round(float(size)) for size in (work.m, work.n, work.k))
        step.op("aten::mm", [[m, k], [k, n]], "nvjet", round(1.1e6 * float(call.priced.seconds), 3))
    work = cores[0].priced.op.work
    assert isinstance(work, AttentionCore)
    heads, kv = (
        [round(float(work.batch)), round(float(count)), round(float(work.queries)), work.query_dim]
        for count in (work.heads, work.kv_heads)
    )
    flash, name = "flash_fwd_kernel", "aten::_scaled_dot_product_flash_attention"
    step.op(name, [heads, kv, kv], flash, round(1.1e6 * float(cores[0].priced.seconds), 3))
    step.op("aten::mm", [[77, 77], [77, 77]], "nvjet", 9)
    step.made.add("user_annotation", "ProfilerStep#3", 0, step.now)
    found = trace_match(step.work(), small)
    assert found.step == 3
    assert found.measured_step_s == pytest.approx(step.now * 1e-6)
    assert {one.category for one in found.matched} == {"gemm", "attention"}
    assert all(-0.5 < one.error < 0.7 for one in found.matched)
    exact = [one for one in found.matched if one.measured_count == 1]
    assert exact
    assert all(one.error == pytest.approx(1 / 1.1 - 1, abs=0.01) for one in exact)
    assert any(one.shape == "77 x 77 x 77" for one in found.only_measured)
    assert any(one.category == "dp" for one in found.only_predicted)
    gemm = next(one for one in found.differences if one.category == "gemm")
    assert gemm.measured_s < gemm.predicted_s  # one micro-batch against all of them
    longer = (Difference("gemm", 1.0, 1.2), Difference("attention", 1.0, 1.5))
    told = replace(found, differences=longer, measured_host_s=2.0, predicted_host_s=1.7)
    assert told.missing == "attention"
    assert replace(told, measured_host_s=9.0).missing == "host"
    assert replace(told, differences=(), measured_host_s=1.0).missing is None


def test_a_stage_and_a_step_that_are_not_there(step, small):
    step.op("aten::mm", [[64, 64], [64, 64]], "nvjet", 5)
    with pytest.raises(SpecError, match="--stage: 4 is no pipeline rank; 0 to 3"):
        trace_match(step.work(), small, stage=4)
    with pytest.raises(SpecError, match="the trace has no steps"):
        trace_match(step.work(), small, step=2)


def test_two_traces_are_compared(made):
    one = Step(made)
    products(one)
    first = one.work("first.json")
    made.events = []
    other = Step(made)
    products(other, slower=2.0)
    other.op("aten::add", [[8192, 8192], [8192, 8192]], "vectorized_elementwise_kernel", 100)
    found = trace_diff(first, other.work("second.json"))
    assert (found.first, found.second) == ("first.json", "second.json")
    assert [one.state for one in found.ops if one.family == "elementwise"] == ["new"]
    gemm = next(pair for pair in found.devices[0].classes if pair.name == "gemm")
    assert gemm.second == pytest.approx(2 * gemm.first, rel=1e-3)


@pytest.fixture
def mixed(step):
    products(step)
    told = {
        "Collective name": "allreduce",
        "In msg nelems": 4096,
        "Out msg nelems": 4096,
        "dtype": "Float",
        "Group size": 8,
    }
    step.made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150, 999.125, stream=20, launch=120, **told)
    step.made.kernel("Memcpy HtoD", 1500, 9, stream=21, launch=1400, cat="gpu_memcpy", bytes=77)
    step.made.add("python_function", "forward", 0, 5)
    step.made.head["baseTimeNanoseconds"] = 1751410836000000000
    return step.work()


def test_a_chrome_trace_holds_what_the_trace_held(mixed, tmp_path):
    path = tmp_path / "t.json"
    to_perfetto(mixed, path)
    table = read_timeline(path)
    assert summaries(table) == summaries(mixed.table)
    assert (table.rank, table.gpus) == (0, mixed.table.gpus)
    assert traced_ops([work_of(table)]).to_dict() == traced_ops([mixed]).to_dict()
    assert sum(event["ph"] == "s" for event in json.loads(path.read_text())["traceEvents"]) == len(mixed.links.work)


def test_a_parquet_table_holds_the_events(mixed, tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    to_parquet(mixed, path)
    frame = pd.read_parquet(path)
    assert len(frame) == len(mixed.table)
    work = frame[frame["work_class"] != ""]
    assert work["duration_ns"].sum() == mixed.table.duration[mixed.links.work].sum()
    assert set(work["work_class"]) == {"gemm", "nccl", "copy"}
    launches = frame.loc[work["launch_row"]]
    assert (launches["correlation"].to_numpy() == work["correlation"].to_numpy()).all()


def test_prices_follow_public_h100_traces(shared_traces):
    """No constant was fitted to these files; shapes above 1 GFLOP."""
    paths = sorted((shared_traces / "kineto").glob("tl_h100_*.json.gz"))
    with works(paths) as read:
        found = traced_ops(read, family="gemm")
    errors = sorted(abs(error) for error in found.errors("gemm", 1e9))
    assert len(errors) >= 12
    assert errors[len(errors) // 2] <= 0.10
    far = [one for one in found.ops if (one.flop or 0) > 1e9 and abs(one.error or 0) > 0.15]
    assert all(one.remarks for one in far)
