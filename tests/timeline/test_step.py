"""The graph of a step: rows, pairs, and what data parallelism adds."""

from typing import Any

import numpy as np
import pytest

from moesim.timeline.run import run
from moesim.timeline.schedule import Op, Schedule, Slot
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph
from moesim.timeline.tasks import NIC

SECONDS = {"F": 1.0, "BW": 2.0, "OV": 3.0, "reduce": 0.5, "gather": 0.25, "optimizer": 0.125}


def timed(step, **changes):
    seconds = SECONDS | changes
    return run(step.graph, [seconds[kind] for kind, _ in step.rows])


def end(step, result, *key):
    return float(result.end[step.graph.index(key)])


def start(step, result, *key):
    return float(result.start[step.graph.index(key)])


def all_keys(step) -> list[Any]:
    return list(step.graph.keys)


def keys(step, rank, lane=0):
    return [step.graph.keys[task] for task in step.tasks_of(rank, lane)]


def test_rows_are_those_of_what_occurs():
    step = step_graph(schedules.get("1f1b"), 2, 4, grad_reduce="after")
    assert list(step.rows) == [(kind, q) for kind in ("F", "BW", "reduce", "optimizer") for q in (0, 1)]
    assert [step.row(*label) for label in step.rows] == list(range(step.num_rows))
    assert (step.num_stages, step.num_ranks, step.num_delay_rows) == (2, 2, 2)
    with pytest.raises(ValueError, match="no task gather of 0; its kinds of task are BW, F, optimizer, reduce"):
        step.row("gather", 0)
    with pytest.raises(ValueError, match="no task F of 2"):
        step.row("F", 2)


def test_table_and_rows_fit_the_keys():
    step = step_graph(
        schedules.get("interleaved-1f1b"), 4, 8, 2, merge_pairs=True, extra_warmup=1, param_gather="overlap"
    )
    labels = list(step.rows)
    for task, key in enumerate(all_keys(step)):
        kind, *numbers = key
        where = (numbers[0], numbers[2]) if kind == "OV" else numbers[0]
        assert labels[step.graph.duration_row[task]] == (kind, where)
        rank = numbers[0] if kind == "optimizer" else step.stage_rank[numbers[0]]
        assert step.tasks.rank[task] == rank == step.graph.lane[task] // 2


def test_steps_of_the_same_shape_are_made_once():
    schedule = schedules.get("1f1b")
    assert step_graph(schedule, 2, 4, grad_reduce="after") is step_graph(schedule, 2, 4, grad_reduce="after")


def test_a_boundary_inside_a_rank_costs_nothing():
    class Folded(Schedule):
        def stage_rank(self, pp, vpp):
            return (0, 1, 1, 0)

        def order(self, pp, micro_batches, vpp, extra_warmup=0):
            forwards = [[Slot(Op.F, q, 0) for q in own] for own in ((0, 3), (1, 2))]
            return [[*some, *(Slot(Op.BW, slot.stage, 0) for slot in reversed(some))] for some in forwards]

    step = step_graph(Folded(), 2, 1, 2, optimizer=False)
    delays = [0.0, 1.0, 10.0, 100.0]  # between the stages 0-1, 1-2, 2-3
    assert float(run(step.graph, [SECONDS[kind] for kind, _ in step.rows], delays).makespan) == 12 + 2 * 1 + 2 * 100


def test_pairs_run_as_one_task_in_the_steady_state():
    step = step_graph(schedules.get("none"), 1, 4, merge_pairs=True, extra_warmup=1, optimizer=False)
    pairs = [("OV", 0, i + 1, 0, i) for i in range(3)]
    assert keys(step, 0) == [("F", 0, 0), *pairs, ("BW", 0, 3)]
    assert float(timed(step).makespan) == 12
    assert float(timed(step, OV=2.5).makespan) == 10.5


def test_a_pair_of_one_micro_batch_stays_two_tasks():
    step = step_graph(schedules.get("none"), 1, 4, merge_pairs=True, optimizer=False)
    assert {kind for kind, _ in step.rows} == {"F", "BW"}


def test_gpipe_has_no_pairs():
    step = step_graph(schedules.get("gpipe"), 4, 8, merge_pairs=True, extra_warmup=1)
    assert "OV" not in {kind for kind, _ in step.rows}


def test_a_pair_waits_for_what_both_halves_wait_for():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 4, 2, merge_pairs=True, extra_warmup=1, optimizer=False)
    result = timed(step)
    halves = {}
    for key in all_keys(step):
        kind, *numbers = key
        if kind in ("F", "OV"):
            halves["F", *numbers[:2]] = key
        if kind in ("BW", "OV"):
            halves["BW", *numbers[-2:]] = key
    assert len(halves) == 2 * 4 * 4
    assert any(key[0] == "OV" for key in halves.values())
    for (kind, stage, micro_batch), key in halves.items():
        before = [(kind, stage - 1 if kind == "F" else stage + 1, micro_batch)]
        before += [("F", stage, micro_batch)] if kind == "BW" else []
        for half in before:
            if half in halves:
                assert start(step, result, *key) >= end(step, result, *halves[half])


@pytest.mark.parametrize("pp", range(2, 9))
@pytest.mark.parametrize("vpp", [2, 3, 4])
@pytest.mark.parametrize("extra_warmup", [0, 1])
def test_pairs_of_interleaving_never_deadlock_and_add_no_bubble(pp, vpp, extra_warmup):
    for rounds in range(1, 5):
        shape = pp, pp * rounds, vpp
        merged = step_graph(
            schedules.get("interleaved-1f1b"), *shape, merge_pairs=True, extra_warmup=extra_warmup, optimizer=False
        )
        plain = step_graph(schedules.get("interleaved-1f1b"), *shape, optimizer=False)
        assert float(timed(merged).makespan) >= float(timed(plain).makespan)
        if extra_warmup:
            # Every pair of the steady state merges, and as long as a pair takes F + BW that costs nothing.
            pairs = sum(kind == "OV" for kind, *_ in all_keys(merged))
            warmup = [(vpp - 1) * pp + 2 * (pp - 1 - rank) + 1 for rank in range(pp)]
            assert pairs == sum(max(0, shape[1] * vpp - forwards) for forwards in warmup)
            assert float(timed(merged).makespan) == float(timed(plain).makespan)


@pytest.mark.parametrize("pp", range(1, 9))
@pytest.mark.parametrize("extra_warmup", [0, 1, 2])
def test_pairs_of_1f1b_never_deadlock(pp, extra_warmup):
    for micro_batches in range(1, 4 * pp):
        step = step_graph(schedules.get("1f1b"), pp, micro_batches, merge_pairs=True, extra_warmup=extra_warmup)
        assert float(timed(step).makespan) >= 3 * micro_batches


def test_pairs_of_1f1b_pay_a_round_trip_a_micro_batch():
    def seconds(micro_batches):
        step = step_graph(schedules.get("1f1b"), 4, micro_batches, merge_pairs=True, extra_warmup=1, optimizer=False)
        return float(timed(step).makespan)

    assert (seconds(64) - seconds(32)) / 32 == pytest.approx(6)  # two pairs of 3; without merging it is 3


def test_reductions_overlap_with_the_backwards_of_other_chunks():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 4, 2, grad_reduce="overlap")
    result = timed(step)
    assert keys(step, 0, NIC) == [("reduce", 2), ("reduce", 0)]  # the later chunk is done first
    assert start(step, result, "reduce", 2) == end(step, result, "BW", 2, 3)
    assert start(step, result, "reduce", 0) == end(step, result, "BW", 0, 3)
    assert start(step, result, "optimizer", 0) == end(step, result, "reduce", 0)
    assert float(result.makespan) == 27 + 0.5 + 0.125


def test_reductions_after_the_backwards_are_exposed():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 4, 2, grad_reduce="after")
    result = timed(step)
    assert start(step, result, "reduce", 2) == end(step, result, "BW", 0, 3)
    assert float(result.makespan) == 27 + 2 * 0.5 + 0.125


def test_gathers_overlap_with_the_first_forwards():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 4, 2, param_gather="overlap")
    result = timed(step)
    assert keys(step, 1, NIC) == [("gather", 1), ("gather", 3)]
    assert start(step, result, "F", 0, 0) == end(step, result, "gather", 0) == 0.25
    assert float(result.makespan) == 27.25 + 0.125
    slow = timed(step, gather=10.0)
    assert start(step, slow, "F", 2, 0) == end(step, slow, "gather", 2) == 20


def test_gathers_after_the_optimizer_are_exposed():
    step = step_graph(schedules.get("interleaved-1f1b"), 2, 4, 2, grad_reduce="overlap", param_gather="after")
    result = timed(step)
    assert keys(step, 0, NIC) == [("reduce", 2), ("reduce", 0), ("gather", 0), ("gather", 2)]
    assert start(step, result, "gather", 0) == end(step, result, "optimizer", 0)
    assert float(result.makespan) == 27 + 0.5 + 0.125 + 2 * 0.25


def test_without_an_optimizer_gathers_follow_the_backwards():
    step = step_graph(schedules.get("1f1b"), 2, 4, param_gather="after", optimizer=False)
    result = timed(step)
    assert start(step, result, "gather", 0) == end(step, result, "BW", 0, 3)


def test_what_a_schedule_cannot_do_is_refused():
    with pytest.raises(ValueError, match="interleaved-1f1b-rounds: 9 micro-batches"):
        step_graph(schedules.get("interleaved-1f1b"), 4, 9, 2)
    with pytest.raises(ValueError, match="'overlapped' is none of none, after, overlap"):
        step_graph(schedules.get("1f1b"), 4, 8, grad_reduce="overlapped")


class Listed(Schedule):
    """A schedule of one rank given by its slots."""

    def __init__(self, *slots):
        self.slots = slots

    def order(self, pp, micro_batches, vpp, extra_warmup=0):
        return [[Slot(*slot) for slot in self.slots]]


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([(Op.BW, 0, 0), (Op.F, 0, 0)], "deadlock: the backward of stage 0, micro-batch 0 comes before its forward"),
        ([(Op.F, 0, 0)], "run the backward of each stage"),
        ([(Op.F, 0, 0), (Op.F, 0, 0), (Op.BW, 0, 0)], "run the forward of each stage and micro-batch once"),
    ],
)
def test_a_schedule_that_cannot_run_says_why(slots, message):
    with pytest.raises(ValueError, match=message):
        step_graph(Listed(*slots), 1, 1)


def test_ranks_that_wait_for_each_other_are_named():
    class Crossed(Schedule):
        def order(self, pp, micro_batches, vpp, extra_warmup=0):
            first = [Slot(Op.F, 0, 0), Slot(Op.BW, 0, 0), Slot(Op.F, 0, 1), Slot(Op.BW, 0, 1)]
            second = [Slot(Op.F, 1, 1), Slot(Op.BW, 1, 1), Slot(Op.F, 1, 0), Slot(Op.BW, 1, 0)]
            return [first, second]

    with pytest.raises(ValueError, match=r"deadlock: .*\('BW', 1, 0\) waits for"):
        step_graph(Crossed(), 2, 2)


def test_split_backwards_hand_on_the_input_gradient_first():
    step = step_graph(Listed((Op.F, 0, 0), (Op.B, 0, 0), (Op.W, 0, 0)), 1, 1, grad_reduce="overlap")
    assert list(step.rows) == [("F", 0), ("B", 0), ("W", 0), ("reduce", 0), ("optimizer", 0)]
    result = run(step.graph, [1.0, 1.0, 1.0, 0.5, 0.25])
    assert start(step, result, "reduce", 0) == end(step, result, "W", 0, 0) == 3
    assert float(result.makespan) == 3.75


def test_a_step_of_a_hundred_thousand_tasks_is_whole():
    step = step_graph(schedules.get("interleaved-1f1b"), 32, 512, 3, optimizer=False)
    assert step.graph.num_tasks == 98304
    result = run(step.graph, np.array([SECONDS[kind] for kind, _ in step.rows]))
    assert float(result.makespan) == 3 * 512 * 3 + 31 * 3
