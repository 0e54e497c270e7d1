"""``--timeline``: a valid Chrome trace whose end is the step time."""

import json
import sys
from itertools import pairwise

import pytest

from moesim.cli.main import main
from moesim.timeline.perfetto import MICROSECONDS

CASES = [
    ("qwen3-235b-h100x256", []),
    ("zoo-002", []),
    ("qwen3-235b-h100x256", ["pp=1", "vpp=1", "schedule=none", "layout=even", "overlap_p2p=false"]),
    ("qwen3-235b-h100x256", ["vpp=1", "schedule=1f1b", "overlap_p2p=false", "overlap_grad_reduce=false", "overlap_param_gather=false", "global_batch=512"]),
]  # fmt: skip


@pytest.fixture(scope="module", params=range(len(CASES)), ids=["interleaved", "overlapped", "no-pipeline", "1f1b"])
def drawn(request, tmp_path_factory):
    """Trace records, and the answer of the same command."""
    name, changes = CASES[request.param]
    folder = tmp_path_factory.mktemp("trace")
    options = [option for change in changes for option in ("--set", change)]
    with pytest.MonkeyPatch.context() as patch:
        files = ["--timeline", str(folder / "step.json"), "-o", str(folder / "answer.json")]
        patch.setattr(sys, "argv", ["moesim", "estimate", name, *options, *files])
        with pytest.raises(SystemExit) as exit_:
            main()
    assert exit_.value.code == 0
    trace = json.loads((folder / "step.json").read_text())
    return trace, json.loads((folder / "answer.json").read_text())


def complete(trace):
    return [record for record in trace["traceEvents"] if record["ph"] == "X"]


def test_it_is_a_chrome_trace(drawn):
    trace, _ = drawn
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert {record["ph"] for record in trace["traceEvents"]} <= {"X", "M", "s", "f"}
    for record in trace["traceEvents"]:
        assert isinstance(record["pid"], int)
        assert isinstance(record["name"], str)
        if record["ph"] == "X":
            assert record["ts"] >= 0
            assert record["dur"] >= 0
            assert isinstance(record["tid"], int)


def test_the_last_event_ends_at_the_step_time(drawn):
    trace, answer = drawn
    end = max(record["ts"] + record["dur"] for record in complete(trace)) / MICROSECONDS
    assert end == pytest.approx(answer["step_time_s"], rel=1e-9)
    assert min(record["ts"] for record in complete(trace)) == 0


def test_events_of_a_lane_do_not_overlap(drawn):
    trace, answer = drawn
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for record in complete(trace):
        lanes.setdefault((record["pid"], record["tid"]), []).append((record["ts"], record["ts"] + record["dur"]))
    assert len({pid for pid, _ in lanes}) == answer["strategy"]["pp"]
    for spans in lanes.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 1e-6 * answer["step_time_s"]


def test_every_rank_and_lane_has_a_name(drawn):
    trace, answer = drawn
    named = {
        (record["name"], record["pid"], record.get("tid")) for record in trace["traceEvents"] if record["ph"] == "M"
    }
    for rank in range(answer["strategy"]["pp"]):
        assert ("process_name", rank, None) in named
    for record in complete(trace):
        assert ("thread_name", record["pid"], record["tid"]) in named


def test_every_micro_batch_of_every_stage_is_drawn(drawn):
    trace, answer = drawn
    strategy = answer["strategy"]
    dp = 256 // (strategy["tp"] * strategy["pp"])
    batch = 512 if strategy["vpp"] == 1 and strategy["pp"] > 1 else 2048
    micro_batches = batch // (dp * strategy["micro_batch"])
    forward = {(r["args"]["stage"], r["args"]["micro_batch"]) for r in complete(trace) if r["name"].startswith("F ")}
    assert len(forward) == strategy["pp"] * strategy["vpp"] * micro_batches


def test_arrows_lead_from_stage_to_stage(drawn):
    trace, answer = drawn
    starts = {record["id"]: record for record in trace["traceEvents"] if record["ph"] == "s"}
    ends = {record["id"]: record for record in trace["traceEvents"] if record["ph"] == "f"}
    assert starts.keys() == ends.keys()
    if answer["strategy"]["pp"] == 1:
        assert not starts
        return
    assert starts
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for record in complete(trace):
        slices.setdefault((record["pid"], record["tid"]), []).append((record["ts"], record["ts"] + record["dur"]))
    for number in list(starts)[:: max(1, len(starts) // 200)]:
        source, target = starts[number], ends[number]
        assert source["pid"] != target["pid"]
        assert source["ts"] <= target["ts"]
        for record in (source, target):  # an arrow is drawn only where it touches a slice
            spans = slices[record["pid"], record["tid"]]
            assert any(low <= record["ts"] <= high for low, high in spans)
