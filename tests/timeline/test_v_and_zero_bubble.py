"""V-shaped, zero-bubble and bidirectional schedules: worked orders, closed forms and what their authors promise."""

import numpy as np
import pytest

from moesim.timeline.run import run
from moesim.timeline.schedule import Op, backward_first, kept_chunks, program_array, program_slots, v_shape
from moesim.timeline.schedules import schedules
from moesim.timeline.schedules.zb_h1 import ZeroBubbleH1
from moesim.timeline.squeeze import FIRST_HALF, FORWARD, SECOND_HALF, Squeeze, building_block
from moesim.timeline.step import step_graph
from moesim.timeline.walk import held_chunks

UNIT = {"F": 1.0, "B": 1.0, "W": 1.0, "BW": 2.0, "OV": 3.0}
EACH_PP = range(2, 17)


def shaped(name, pp, micro_batches):
    return pp, micro_batches, schedules.get(name).chunks


def unit_run(name, pp, micro_batches, *, merged=False, lengths=UNIT, extra_warmup=0):
    schedule = schedules.get(name)
    options = {"optimizer": False, "merge_pairs": merged, "extra_warmup": extra_warmup}
    step = step_graph(schedule, *shaped(name, pp, micro_batches), **options)
    return step, run(step.graph, np.array([lengths[kind] for kind, _ in step.rows]))


def idle(step, result):
    return {float(result.makespan - (result.end - result.start)[step.tasks_of(r)].sum()) for r in range(step.num_ranks)}


def test_stages_on_a_v():
    assert dict(enumerate(v_shape(4))) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 5: 2, 6: 1, 7: 0}


@pytest.mark.parametrize("name", ["1f1b-v", "zb-v", "v-half", "v-min", "dualpipev"])
def test_the_ends_of_the_model_share_a_rank_on_a_v_and_its_turn_costs_no_transfer(name):
    pp, micro_batches, vpp = shaped(name, 4, 8)
    schedule = schedules.get(name)
    ranks = schedule.stage_rank(pp, vpp)
    assert ranks[0] == ranks[-1] == 0
    step = step_graph(schedule, pp, micro_batches, vpp, optimizer=False)
    assert np.unique(step.graph.delay_row).tolist() == [0, 1, 2, 3, 5, 6, 7]  # row 4 would be the turn


WORKED = [
    "0F0 0F1 0F2 3F0 3B0 _ 3F1 3B1 _ 0F3 0B0 _ 3F2 3B2 _ . 0B1 _ 3F3 3B3 _ . 0B2 _ . . 0B3 _",
    ". 1F0 2F0 1F1 2F1 . 2B0 _ 1B0 _ 1F2 2F2 2B1 _ 1B1 _ 1F3 2F3 2B2 _ 1B2 _ 2B3 _ 1B3 _ . .",
]


@pytest.mark.parametrize("rank", [0, 1])
def test_1f1b_v_of_two_ranks_and_four_micro_batches_slot_by_slot(rank):
    entries = Squeeze(2, 4, 0).entries
    start = min(slot for slot, *_ in entries)
    cells = ["."] * 28
    for slot, owner, kind, stage, micro_batch in entries:
        if owner == rank:
            text = {FORWARD: f"{stage}F{micro_batch}", FIRST_HALF: f"{stage}B{micro_batch}", SECOND_HALF: "_"}
            cells[slot - start] = text[kind]
    assert cells == WORKED[rank].split()


@pytest.mark.parametrize("pp", EACH_PP)
def test_blocks_of_1f1b_v_a_period_apart_never_meet(pp):
    forward, backward = building_block(pp)
    for rank in range(pp):
        stages = (rank, 2 * pp - 1 - rank)
        slots = [s for q in stages for s in (forward[q], backward[q], backward[q] + 1)]
        assert len({slot % 6 for slot in slots}) == 6


@pytest.mark.parametrize("pp", EACH_PP)
def test_1f1b_v_keeps_as_much_on_every_rank_and_idles_a_constant(pp):
    step, result = unit_run("1f1b-v", pp, 4 * pp)
    assert held_chunks(step, result) == (2 * (2 * pp // 3 + 1),) * pp
    (waits,) = idle(step, result)
    assert {waits} == idle(*unit_run("1f1b-v", pp, 5 * pp))
    known = {1: 5 * (pp - 1), 2: 5 * pp - 7, 0: 5 * pp - 8}[pp % 3]
    assert waits == {2: 4, 3: 8, 9: 36}.get(pp, known)


def test_pulling_forwards_ahead_trades_memory_for_time():
    found = [unit_run("1f1b-v", 4, 8, extra_warmup=ahead) for ahead in (0, 1, 2)]
    assert [float(result.makespan) for _, result in found] == [63, 63, 61]
    assert [held_chunks(step, result) for step, result in found] == [(6,) * 4, (7,) * 4, (8,) * 4]


@pytest.mark.parametrize("pp", EACH_PP)
def test_zb_h1_idles_a_third_of_1f1b(pp):
    for lengths in (UNIT, UNIT | {"B": 1.25, "W": 0.75}):
        expected = (pp - 1) * (lengths["F"] + lengths["B"] - lengths["W"])
        for micro_batches in (2 * pp, 3 * pp):
            assert idle(*unit_run("zb-h1", pp, micro_batches, lengths=lengths)) == {expected}


@pytest.mark.parametrize("pp", EACH_PP)
def test_zb_h2_works_without_a_break_from_the_first_task_to_the_last(pp):
    for micro_batches in (2 * pp - 1, 3 * pp):
        step, result = unit_run("zb-h2", pp, micro_batches)
        for rank in range(pp):
            own = step.tasks_of(rank)
            assert result.start[own].min() == rank
            assert result.end[own].max() == rank + 3 * micro_batches
        first = program_slots(schedules.get("zb-h2").order(pp, micro_batches, 1)[0])
        assert [slot.op for slot in first[: 2 * pp]] == [Op.F] * (2 * pp - 1) + [Op.B]


@pytest.mark.parametrize("pp", EACH_PP)
def test_zb_v_waits_for_its_start_only(pp):
    for micro_batches in (2 * pp, 2 * pp + 1, 4 * pp):
        step, result = unit_run("zb-v", pp, micro_batches)
        assert idle(step, result) == {pp - 1}
        assert held_chunks(step, result) == (2 * pp,) * pp


@pytest.mark.parametrize("pp", EACH_PP)
@pytest.mark.parametrize(("name", "most"), [("v-half", lambda pp: (pp + 2) // 2), ("v-min", lambda pp: (pp + 4) // 3)])
def test_controllable_memory_keeps_what_the_paper_says_and_idles_a_constant(name, most, pp):
    step, result = unit_run(name, pp, 4 * pp)
    assert max(held_chunks(step, result)) == 2 * most(pp)
    assert idle(step, result) == idle(*unit_run(name, pp, 6 * pp))
    one_f_one_b = 6 * (pp - 1)  # of chunks half as long
    (waits,) = idle(step, result)
    assert waits < one_f_one_b * (0.65 if name == "v-half" else 0.85)


@pytest.mark.parametrize("pp", range(2, 17, 2))
def test_dualpipe_idles_what_deepseek_says(pp):
    for micro_batches in (2 * pp, 2 * pp + 2, 4 * pp):
        assert idle(*unit_run("dualpipe", pp, micro_batches, merged=True)) == {(pp // 2 - 1) * (3 + 2 - 3)}


@pytest.mark.parametrize("pp", EACH_PP)
def test_dualpipev_idles_what_deepseek_says(pp):
    for micro_batches in (2 * pp, 2 * pp + 1, 4 * pp):
        assert idle(*unit_run("dualpipev", pp, micro_batches, merged=True)) == {(pp - 1) * (3 + 2 - 3)}


def test_dualpipe_runs_two_pipelines_that_never_wait_for_each_other():
    step, _ = unit_run("dualpipe", 4, 8)
    assert step.stage_rank == (0, 1, 2, 3, 3, 2, 1, 0)
    micro_batches = {q: {i for kind, stage, i in step.graph.keys if stage == q and kind == "F"} for q in range(8)}
    assert all(micro_batches[q] == set(range(4)) for q in range(4))
    assert all(micro_batches[q] == set(range(4, 8)) for q in range(4, 8))
    lane = step.graph.preds[:, 0]
    for task, row in enumerate(step.graph.preds):
        for pred in row[row < step.graph.num_tasks]:
            if pred != lane[task]:
                assert step.tasks.micro_batch[pred] == step.tasks.micro_batch[task]


def test_the_first_pair_of_the_ranks_where_flows_meet_is_not_merged():
    step, _ = unit_run("dualpipe", 4, 8, merged=True)
    kinds = [[step.graph.keys[task][0] for task in step.tasks_of(rank)] for rank in range(4)]
    assert [kind.count("OV") for kind in kinds] == [3, 3, 3, 3]
    assert kinds[1][kinds[1].index("OV") - 2 :][:2] == ["F", "BW"]


@pytest.mark.parametrize("merged", [False, True])
def test_a_backward_without_its_weight_gradient_is_refused(merged):
    class Broken(ZeroBubbleH1):
        def order(self, pp, micro_batches, vpp, extra_warmup=0):
            return [program[:-1] for program in super().order(pp, micro_batches, vpp, extra_warmup)]

    with pytest.raises(ValueError, match="one weight gradient for each split backward"):
        step_graph(Broken(), 2, 4, merge_pairs=merged)


def test_a_weight_gradient_before_its_backward_is_refused():
    class Early(ZeroBubbleH1):
        def order(self, pp, micro_batches, vpp, extra_warmup=0):
            programs = super().order(pp, micro_batches, vpp, extra_warmup)
            last = programs[-1]
            place = next(at for at, slot in enumerate(last) if slot.op == Op.W)
            last.insert(0, last.pop(place))
            return programs

    with pytest.raises(ValueError, match="the weight gradient of stage 1, micro-batch 0 comes before its backward"):
        step_graph(Early(), 2, 4)


def test_what_waits_for_a_weight_gradient_is_told_apart():
    program = schedules.get("zb-h1").order(4, 8, 1)[3]
    stages, whole, waiting = kept_chunks(program)
    assert stages.tolist() == [3]
    assert whole.max() == 1  # the last rank runs each backward at once
    assert waiting.max() == 4  # before the first weight gradient; three wait while the next backward runs
    assert (whole + waiting).max() == 4
    _, whole, waiting = kept_chunks(schedules.get("1f1b").order(4, 8, 1)[0])
    assert (whole.max(), waiting.max()) == (4, 0)


@pytest.mark.parametrize(
    ("name", "shape", "rule", "legal"),
    [
        ("1f1b-v", (4, 8, 1), "1f1b-v-vpp", "vpp=2"),
        ("1f1b-v", (1, 8, 2), "1f1b-v-pp", "pp>=2"),
        ("zb-h1", (4, 8, 2), "zb-h1-vpp", "vpp=1"),
        ("zb-h2", (4, 8, 2), "zb-h2-vpp", "vpp=1"),
        ("zb-v", (4, 8, 4), "zb-v-vpp", "vpp=2"),
        ("v-half", (4, 8, 1), "v-half-vpp", "vpp=2"),
        ("v-min", (1, 8, 2), "v-min-pp", "pp>=2"),
        ("dualpipe", (3, 8, 1), "dualpipe-pp", "an even pp"),
        ("dualpipe", (4, 9, 1), "dualpipe-micro-batches", "global_batch / (dp micro_batch) even and 8 or more"),
        ("dualpipe", (4, 6, 1), "dualpipe-micro-batches", "global_batch / (dp micro_batch) even and 8 or more"),
        ("dualpipev", (4, 7, 2), "dualpipev-micro-batches", "global_batch / (dp micro_batch) 8 or more"),
    ],
)
def test_what_a_schedule_cannot_do_names_the_rule_and_the_legal_values(name, shape, rule, legal):
    (violation,) = schedules.get(name).constraints(*shape)
    assert (violation.rule, violation.legal) == (rule, legal)
    assert (
        str(shape[0]) in violation.message or str(shape[1]) in violation.message or str(shape[2]) in violation.message
    )


def test_of_a_pair_that_runs_as_one_task_the_backward_lets_go_first():
    """A rank alone, with one forward ahead: F0, then (F1, B0), (F2, B1) and so on; two micro-batches are never held whole."""
    (program,) = schedules.get("1f1b").order(1, 4, 1, 1)
    swapped = backward_first(program)
    assert [(Op(op).name, micro_batch) for op, _, micro_batch, _ in swapped.tolist()][:5] == [
        ("F", 0),
        ("BW", 0),
        ("F", 1),
        ("BW", 1),
        ("F", 2),
    ]
    assert [int(kept_chunks(one)[1].max()) for one in (program, swapped)] == [2, 1]
    (alike,) = schedules.get("1f1b").order(1, 4, 1, 0)  # a pair of one micro-batch stays
    assert backward_first(alike).tolist() == program_array(alike).tolist()
