"""Readings of a run: time lines that add up, idle shares, kept chunks, drawn events."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.base.events import Event
from moesim.timeline import perfetto
from moesim.timeline.run import run
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph
from moesim.timeline.walk import events, held_chunks, idle_fraction, last_rank, walk_rank

SHAPES = [("none", 1, 5, 1), ("gpipe", 3, 5, 1), ("1f1b", 4, 6, 1), ("interleaved-1f1b", 3, 6, 2)]
COMMUNICATION = ["none", "after", "overlap"]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape[0])
@given(
    st.sampled_from(COMMUNICATION),
    st.sampled_from(COMMUNICATION),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_the_time_line_of_every_rank_adds_up(shape, reduce, gather, optimizer, merge, seed):
    name, *sizes = shape
    step = step_graph(
        schedules.get(name),
        *sizes,
        merge_pairs=merge,
        extra_warmup=int(merge),
        grad_reduce=reduce,
        param_gather=gather,
        optimizer=optimizer,
    )
    generator = np.random.default_rng(seed)
    delays = generator.random(step.num_delay_rows) / 3
    delays[0] = 0
    result = run(step.graph, generator.random(step.num_rows), delays)
    for rank in range(step.num_ranks):
        segments = walk_rank(step, result, rank)
        assert sum(segment.seconds for segment in segments) == pytest.approx(result.makespan, rel=1e-12)
        assert all(segment.seconds >= 0 for segment in segments)
        assert all((segment.row is None) == (segment.kind in ("idle", "transfer")) for segment in segments)
        assert sum(segment.kind == "busy" for segment in segments) == len(step.tasks_of(rank))


def walked(step, durations, delays=None, rank=None):
    result = run(step.graph, durations, delays)
    rank = last_rank(step, result) if rank is None else rank
    labels = list(step.rows)
    return [
        (kind, None if row is None else labels[row], seconds) for kind, row, seconds in walk_rank(step, result, rank)
    ]


def test_a_wait_is_split_into_idling_and_transfer():
    step = step_graph(schedules.get("1f1b"), 2, 1, optimizer=False)
    assert walked(step, [1, 1, 2, 2], [0, 0.25]) == [
        ("busy", ("F", 0), 1),
        ("idle", None, 3.25),
        ("transfer", None, 0.25),
        ("busy", ("BW", 0), 2),
    ]
    assert walked(step, [1, 1, 2, 2], [0, 0.25], rank=1) == [
        ("idle", None, 1),
        ("transfer", None, 0.25),
        ("busy", ("F", 1), 1),
        ("busy", ("BW", 1), 2),
        ("idle", None, 2.25),
    ]


def test_waits_for_reductions_and_gathers_name_them():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 2, 2, grad_reduce="after", param_gather="after")
    seconds = {"F": 1, "BW": 2, "reduce": 4, "gather": 8, "optimizer": 16}
    line = walked(step, [seconds[kind] for kind, _ in step.rows], rank=0)
    assert line[-5:] == [
        ("nic", ("reduce", 2), 4),
        ("nic", ("reduce", 0), 4),
        ("busy", ("optimizer", 0), 16),
        ("nic", ("gather", 0), 8),
        ("nic", ("gather", 2), 8),
    ]


def test_only_the_exposed_part_of_a_reduction_counts():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 2, 2, grad_reduce="overlap")
    seconds = {"F": 1, "BW": 2, "reduce": 5, "optimizer": 1}
    line = walked(step, [seconds[kind] for kind, _ in step.rows], rank=0)
    exposed = sum(seconds for kind, _, seconds in line if kind == "nic")
    assert 5 < exposed < 10
    assert line[-1] == ("busy", ("optimizer", 0), 1)


def test_the_first_forward_waits_for_its_weights():
    step = step_graph(schedules.get("none"), 1, 1, param_gather="overlap", optimizer=False)
    assert walked(step, [1, 2, 5]) == [("nic", ("gather", 0), 5), ("busy", ("F", 0), 1), ("busy", ("BW", 0), 2)]


def test_of_ranks_that_finish_together_the_one_with_the_lowest_stage_is_walked():
    step = step_graph(schedules.get("1f1b"), 2, 1)
    assert last_rank(step, run(step.graph, [1, 1, 2, 2, 1, 3])) == 0  # the optimizer of rank 1 ends at 7, too
    assert last_rank(step, run(step.graph, [1, 1, 2, 2, 1, 4])) == 1


def test_idle_share_of_a_batch():
    step = step_graph(schedules.get("1f1b"), 4, 8, optimizer=False)
    durations = np.array([[1.0, 0.0]] * 4 + [[2.0, 0.0]] * 4)
    assert np.asarray(idle_fraction(step, run(step.graph, durations))).tolist() == [pytest.approx(3 / 11), 0.0]
    assert idle_fraction(step, run(step.graph, durations[:, 0])) == pytest.approx(3 / 11)


def test_a_merged_pair_holds_its_forward_until_its_backward_is_done():
    for extra_warmup, name, shape in [
        (1, "interleaved-1f1b", (4, 8, 2)),
        (1, "none", (1, 8, 1)),
        (1, "1f1b", (4, 8, 1)),
    ]:
        schedule = schedules.get(name)
        step = step_graph(schedule, *shape, merge_pairs=True, extra_warmup=extra_warmup)
        result = run(step.graph, np.ones(step.num_rows))
        assert held_chunks(step, result) == schedule.in_flight(*shape, extra_warmup)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape[0])
@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_events_of_a_lane_do_not_overlap_and_the_last_ends_with_the_step(shape, seed):
    name, *sizes = shape
    step = step_graph(schedules.get(name), *sizes, grad_reduce="overlap", param_gather="after")
    result = run(step.graph, np.random.default_rng(seed).random(step.num_rows))
    drawn, _ = events(step, result)
    assert max(event.end_s for event in drawn) == pytest.approx(result.makespan, rel=1e-15)
    lanes = {(event.rank, event.lane) for event in drawn}
    assert lanes == set(itertools.product(range(sizes[0]), ["sm", "nic"]))
    for lane in lanes:
        own = sorted((event for event in drawn if (event.rank, event.lane) == lane), key=lambda event: event.start_s)
        for before, after in itertools.pairwise(own):
            assert before.end_s <= after.start_s * (1 + 1e-15)


def test_arrows_join_the_halves_of_every_boundary():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 4, 2, grad_reduce="overlap")
    drawn, flows = events(step, run(step.graph, np.ones(step.num_rows)))
    joined = {(drawn[flow.source].name, drawn[flow.target].name) for flow in flows}
    assert len(joined) == len(flows) == 2 * 4 * 3
    assert {("F 0.0", "F 1.0"), ("F 1.3", "F 2.3"), ("BW 3.2", "BW 2.2")} <= joined
    assert all(drawn[flow.source].end_s <= drawn[flow.target].start_s for flow in flows)


def test_events_say_what_they_are():
    step = step_graph(
        schedules.get("none"), 1, 2, merge_pairs=True, extra_warmup=1, grad_reduce="after", param_gather="overlap"
    )
    drawn, flows = events(step, run(step.graph, np.ones(step.num_rows)))
    assert flows == []
    assert [(event.name, event.category, event.lane) for event in sorted(drawn, key=lambda event: event.start_s)] == [
        ("gather 0", "weight gathering", "nic"),
        ("F 0.0", "forward", "sm"),
        ("F 0.1 + BW 0.0", "overlapped", "sm"),
        ("BW 0.1", "backward", "sm"),
        ("reduce 0", "gradient reduction", "nic"),
        ("optimizer", "optimizer", "sm"),
    ]
    pair = next(event for event in drawn if event.category == "overlapped")
    assert pair.args == {"stage": 0, "micro_batch": 1, "back_stage": 0, "back_micro_batch": 0}


def test_chrome_trace_of_a_step(tmp_path):
    step = step_graph(schedules.get("1f1b"), 2, 3, grad_reduce="overlap")
    result = run(step.graph, np.full(step.num_rows, 0.5))
    drawn, flows = events(step, result)
    path = tmp_path / "step.json"
    perfetto.write(path, drawn, flows, {1: "the last rank"})
    records = json.loads(path.read_text())["traceEvents"]
    assert [file.name for file in tmp_path.iterdir()] == ["step.json"]

    slices = [record for record in records if record["ph"] == "X"]
    assert len(slices) == len(drawn)
    assert max(record["ts"] + record["dur"] for record in slices) == pytest.approx(float(result.makespan) * 1e6)
    names = {
        (record["name"], record["pid"], record.get("tid")): record["args"] for record in records if record["ph"] == "M"
    }
    assert names["process_name", 0, None] == {"name": "rank 0"}
    assert names["process_name", 1, None] == {"name": "the last rank"}
    assert {names["thread_name", 1, tid]["name"] for tid in (0, 1)} == {"sm", "nic"}

    leaving = {record["id"]: record for record in records if record["ph"] == "s"}
    arriving = {record["id"]: record for record in records if record["ph"] == "f"}
    assert leaving.keys() == arriving.keys()
    assert len(leaving) == len(flows) == 6
    for number, record in leaving.items():
        assert record["ts"] <= arriving[number]["ts"]
        around = [s for s in slices if s["pid"] == record["pid"] and s["ts"] <= record["ts"] < s["ts"] + s["dur"]]
        assert len(around) == 1
        assert arriving[number]["ts"] in {s["ts"] for s in slices if s["pid"] == arriving[number]["pid"]}


def test_a_trace_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "step.json"
    path.write_text("before")
    with pytest.raises(ValueError, match="not JSON compliant"):
        perfetto.write(path, [Event(0, "sm", "bad", "bad", 0.0, float("nan"))])
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["step.json"]
