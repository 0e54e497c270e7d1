"""``moesim trace`` and ``moesim calibrate trace``: what they print, write and refuse."""

import json

import pytest

H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
ROWS = [(4096, 4096, 4096, 220), (8192, 4096, 4096, 430), (8192, 8192, 8192, 1700), (4096, 8192, 1024, 115)]
ROWS += [(16384, 1024, 4096, 220), (2048, 4096, 8192, 220), (12288, 4096, 2048, 325)]


@pytest.fixture
def trace(made):
    made.head["deviceProperties"] = H100
    now = 100.0
    for number, (m, n, k, dur) in enumerate(ROWS):
        told = {"External id": 9000 + number, "Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
        made.add("cpu_op", "aten::mm", now - 50, 20, **told)
        made.kernel("nvjet_tst", now, dur, launch=now - 40, external=9000 + number)
        now += dur + 10
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", now, 300, stream=20, launch=now - 40)
    made.kernel("strange_kernel", now + 400, 30, launch=now + 300)
    return made.write()


def test_the_summary_and_its_json(moesim, trace):
    shown = moesim("trace", "summary", trace)
    assert (shown.code, shown.err) == (0, "")
    for words in (
        "times of each GPU",
        "NVIDIA",
        "kernels that no rule knows",
        "strange_kernel",
        "before the next launch",
    ):
        assert words in shown.out
    found = moesim("trace", "summary", trace, "--json").json
    one = found["devices"][0]
    keys = {"window_s", "busy_s", "idle_s", "compute_s", "communication_s", "memory_s", "exposed_s", "exposed_strict_s"}
    assert keys | {"overlap", "kernels", "communication_kernels", "gemm_shapes", "repaired"} <= set(one)
    assert (one["kernels"], one["communication_kernels"], one["gemm_shapes"]) == (len(ROWS) + 2, 1, len(ROWS))
    assert one["exposed_s"] == pytest.approx(300e-6)
    assert one["window_s"] == pytest.approx(one["busy_s"] + one["idle_s"])


def test_repairs_are_told(moesim, made, trace):
    made.write("cut.json", trace.read_text()[:-300])
    shown = moesim("trace", "summary", made.folder / "cut.json")
    assert "file is cut: what came before is read (1, first at byte" in shown.out
    found = moesim("trace", "summary", made.folder / "cut.json", "--json", "--linked-only").json
    assert (found["linked_only"], found["devices"][0]["repaired"]) == (
        True,
        {"file is cut: what came before is read": 1},
    )


def test_operators_and_replays(moesim, trace):
    found = moesim("trace", "ops", trace, "--class", "gemm", "--json").json
    assert (found["gpu"], len(found["ops"])) == ("h100-sxm-80gb", len(ROWS))
    assert "median error of the prices of 7 matrix products above 1 GFLOP" in moesim("trace", "ops", trace).out
    found = moesim("trace", "replay", trace, "--scale", "communication=0", "--json").json
    one = found["devices"][0]
    assert one["busy_s"] == pytest.approx(one["measured_busy_s"] - 300e-6)
    faster = moesim("trace", "replay", trace, "--precision", "fp8", "--set", "memory_bandwidth=2x", "--json").json
    assert faster["devices"][0]["busy_s"] < faster["devices"][0]["measured_busy_s"]
    assert faster["factors"]["gemm"] < 0.8
    assert "critical path" in moesim("trace", "replay", trace, "--cluster", "hgx-h200").out


def test_a_match(moesim, trace):
    shown = moesim("trace", "match", trace, "--scenario", "zoo-004")
    assert (shown.code, shown.err) == (0, "")
    for words in ("kinds of work, sums of kernel times", "only in the estimate", "only in the trace"):
        assert words in shown.out


def test_a_diagnosis_with_a_trace_says_what_kinds_of_work_differ(moesim, trace):
    call = ("diagnose", "zoo-004", "--measured", "24.2s", "--trace", trace)
    found = moesim(*call, "--json").json
    assert {"suspects", "gap_s"} <= set(found)
    matched = moesim("trace", "match", trace, "--scenario", "zoo-004", "--json").json
    assert found["trace"] == matched
    more = {one["category"]: one["difference_s"] for one in matched["differences"]}
    more["host"] = matched["measured_host_s"] - matched["predicted_host_s"]
    most = max(more, key=lambda name: more[name])
    assert found["missing_in_trace"] == (most if more[most] > 0 else None)
    shown = moesim(*call).out
    assert "the traced step spends" in shown
    assert "kinds of work, sums of kernel times" in shown
    (line,) = moesim(*call, "--stage", 99).lines
    assert line.startswith("--stage: 99 is no pipeline rank")


def test_a_difference_and_a_conversion(moesim, made, trace, tmp_path):
    target = tmp_path / "t.perfetto.json"
    converted = moesim("trace", "convert", trace, "-o", target)
    assert (converted.code, converted.out) == (0, "")
    assert "events" in converted.err
    assert json.loads(target.read_text())["traceEvents"]
    found = moesim("trace", "diff", trace, target, "--json").json
    assert all(pair["difference"] == 0 for pair in found["devices"][0]["figures"].values())
    assert "the largest difference first" in moesim("trace", "diff", trace, target).out


def test_a_calibration_serves_prices(moesim, trace, tmp_path):
    target = tmp_path / "overlay.yaml"
    done = moesim("calibrate", "trace", trace, "--gpu", "h100-sxm-80gb", "-o", target)
    assert (done.code, done.out) == (0, "")
    assert "collectives is not fitted" in done.err
    text = target.read_text()
    assert "source: made.json" in text
    assert "family: gemm" in text
    with_own = ("kernel", "gemm", "--gpu", "h100-sxm-80gb", "-m", "8192", "-n", "8192", "-k", "8192", "--json")
    assert moesim(*with_own, "--calibrations", target).json["time_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("summary", "none.json"), "none.json: there is no such file"),
        (("ops", "TRACE", "--class", "gem"), "--class: the trace has no class 'gem'; did you mean 'gemm'?"),
        (("ops", "TRACE", "--gpu", "h10"), "no GPU 'h10'"),
        (("replay", "TRACE", "--scale", "gem=2"), "--scale gem: the trace has no such class"),
        (("replay", "TRACE", "--scale", "gemm"), "--scale gemm: is not PATH=VALUE"),
        (("replay", "TRACE", "--precision", "fp3"), "--precision: the GPU has no rate for 'fp3'"),
        (("replay", "TRACE", "--cluster", "hgx-h200:4"), "--cluster: 'hgx-h200:4' names a number of nodes"),
        (("replay", "TRACE", "--set", "nvlink=2x"), "--set nvlink: is no constant of the replay"),
        (("convert", "TRACE", "-o", "t.csv"), "--out: no answer of the kind '.csv'"),
        (("match", "TRACE"), "Missing option '--scenario'"),
        (("summary", "TRACE", "--rules", "none.yaml"), "none.yaml: there is no such file"),
    ],
)
def test_bad_input(moesim, trace, arguments, line):
    given = [trace if one == "TRACE" else one for one in arguments]
    assert any(line in one for one in moesim("trace", *given).lines)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--gpu", "a100-sxm-80gb"), "--gpu: the traces were taken on h100-sxm-80gb, not on a100-sxm-80gb"),
        (("--gpu", "h100-sxm-80gb", "--family", "gem"), "--family: no family 'gem'"),
        (("--gpu", "h100-sxm-80gb", "--family", "attention"), "attention: none of 0 kernels is a sample"),
    ],
)
def test_bad_calibrations(moesim, trace, arguments, line):
    assert any(line in one for one in moesim("calibrate", "trace", trace, *arguments).lines)
