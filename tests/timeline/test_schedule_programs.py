"""The four schedules: worked orders, times and messages that the literature writes out."""

import re

import numpy as np
import pytest

from moesim.timeline.run import run
from moesim.timeline.schedule import Op, held_chunks, program_array, program_slots
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph


def unit_run(name, pp, micro_batches, vpp=1):
    """Run with F = 1 and BW = 2 slots."""
    step = step_graph(schedules.get(name), pp, micro_batches, vpp, optimizer=False)
    durations = np.zeros(step.num_rows)
    for (kind, _), row in step.rows.items():
        durations[row] = {"F": 1, "BW": 2}[kind]
    return step, run(step.graph, durations)


def slot_table(step, result, rank):
    """What a rank does slot by slot: 2F1 is stage 2, micro-batch 1; `_` is the second half of a backward."""
    cells = ["."] * int(result.makespan)
    for task in step.tasks_of(rank):
        kind, stage, micro_batch = step.graph.keys[task]
        start = int(result.start[task])
        cells[start] = f"{stage}{kind[0]}{micro_batch}"
        if kind == "BW":
            cells[start + 1] = "_"
    return cells


def lockstep_table(pp, micro_batches, vpp, rank):
    """Interleaved program on the grid of OLMo-core, whose empty slots are explicit: `rank` of them at first, two for
    each later rank after the warm-up, and one before each of as many of the last backwards as there are later ranks."""
    slots = program_slots(schedules.get("interleaved-1f1b").order(pp, micro_batches, vpp)[rank])
    later = pp - 1 - rank
    cells = ["."] * rank
    cooling = [place for place, slot in enumerate(slots) if slot.op == Op.BW and slots[place - 1].op == Op.BW]
    for place, slot in enumerate(slots):
        if place and (slot.paired or slot.op == Op.BW) and not any(s.paired or s.op == Op.BW for s in slots[:place]):
            cells += ["."] * 2 * later
        if place in cooling[:later]:
            cells.append(".")
        cells += [f"{slot.stage}{slot.op.name[0]}{slot.micro_batch}", *["_"][: slot.op == Op.BW]]
    return cells


INTERLEAVED_2_4_2 = [
    "0F0 0F1 2F0 2F1 . . 0F2 2B0 _ 0F3 2B1 _ 2F2 0B0 _ 2F3 0B1 _ . 2B2 _ 2B3 _ 0B2 _ 0B3 _",
    ". 1F0 1F1 3F0 3B0 _ 3F1 3B1 _ 1F2 1B0 _ 1F3 1B1 _ 3F2 3B2 _ 3F3 3B3 _ 1B2 _ 1B3 _ . .",
]


@pytest.mark.parametrize("rank", [0, 1])
def test_interleaved_order_of_two_ranks_four_micro_batches_two_chunks(rank):
    expected = INTERLEAVED_2_4_2[rank].split()
    cells = lockstep_table(2, 4, 2, rank)
    assert cells + ["."] * (len(expected) - len(cells)) == expected
    # Run as early as possible, nothing comes later than on the grid, and the whole takes as long.
    step, result = unit_run("interleaved-1f1b", 2, 4, 2)
    early = slot_table(step, result, rank)
    assert len(early) == len(expected) == 27
    assert all(early.index(cell) <= expected.index(cell) for cell in expected if cell not in "._")


def test_interleaved_slots_42_to_45_of_eight_ranks_as_in_olmo_core():
    assert lockstep_table(8, 64, 2, rank=1)[42:46] == ["1F15", "9B3", "_", "9F8"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpipe", ["0F0 0F1 0F2 . . . 0B0 _ 0B1 _ 0B2 _", ". 1F0 1F1 1F2 1B0 _ 1B1 _ 1B2 _ . ."]),
        ("1f1b", ["0F0 0F1 . . 0B0 _ 0F2 0B1 _ . 0B2 _", ". 1F0 1B0 _ 1F1 1B1 _ 1F2 1B2 _ . ."]),
    ],
)
def test_slots_of_two_ranks_three_micro_batches(name, expected):
    step, result = unit_run(name, 2, 3)
    assert [" ".join(slot_table(step, result, rank)) for rank in range(2)] == expected


def test_without_a_pipeline_micro_batches_follow_each_other():
    step, result = unit_run("none", 1, 3)
    assert slot_table(step, result, 0) == ["0F0", "0B0", "_", "0F1", "0B1", "_", "0F2", "0B2", "_"]


def test_rounds_that_are_no_multiple_of_the_ranks():
    # p = 4, m = 6 makes one round of 6: chunks change after 6 forwards, warm-up is 6 + 2 (p - 1 - r).
    programs = [program_slots(program) for program in schedules.get("interleaved-1f1b").order(4, 6, 2)]
    forwards = [(slot.stage, slot.micro_batch) for slot in programs[1] if slot.op == Op.F]
    assert forwards == [(1, i) for i in range(6)] + [(5, i) for i in range(6)]
    warmup = [next(place for place, slot in enumerate(program) if slot.op == Op.BW) - 1 for program in programs]
    assert warmup == [11, 10, 8, 6]  # rank 0: all 12 forwards come first


@pytest.mark.parametrize(
    ("name", "shape", "rule", "legal"),
    [
        ("none", (2, 4, 1), "none-pp", "pp=1"),
        ("none", (1, 4, 2), "none-vpp", "vpp=1"),
        ("gpipe", (4, 8, 2), "gpipe-vpp", "vpp=1"),
        ("1f1b", (4, 8, 3), "1f1b-vpp", "vpp=1"),
        ("interleaved-1f1b", (1, 8, 2), "interleaved-1f1b-pp", "pp>=2"),
        ("interleaved-1f1b", (4, 8, 1), "interleaved-1f1b-vpp", "vpp>=2"),
        ("interleaved-1f1b", (4, 9, 2), "interleaved-1f1b-rounds", "a multiple of 4, such as 8 or 12"),
    ],
)
def test_what_a_schedule_cannot_do_names_the_rule_and_the_legal_values(name, shape, rule, legal):
    (violation,) = schedules.get(name).constraints(*shape)
    assert (violation.rule, violation.legal) == (rule, legal)
    assert re.search(r"\d", violation.message)


@pytest.mark.parametrize("shape", [(4, 8, 2), (4, 6, 2), (4, 3, 2), (8, 1, 4), (2, 2, 2)])
def test_interleaving_takes_what_makes_whole_rounds(shape):
    assert schedules.get("interleaved-1f1b").constraints(*shape) == []


def test_extra_warm_up_never_exceeds_the_forwards():
    for name, pp, vpp in [("none", 1, 1), ("gpipe", 4, 1), ("1f1b", 4, 1), ("interleaved-1f1b", 4, 2)]:
        schedule = schedules.get(name)
        for program in schedule.order(pp, 4, vpp, extra_warmup=99):
            assert [slot.op for slot in program_slots(program)] == [Op.F] * 4 * vpp + [Op.BW] * 4 * vpp
        assert schedule.in_flight(pp, 4, vpp, extra_warmup=99) == (4 * vpp,) * pp


def test_held_chunks_by_stage():
    stages, held = held_chunks(schedules.get("interleaved-1f1b").order(4, 8, 2)[0])
    assert stages.tolist() == [0, 4]
    assert held.sum(axis=1).max() == 11
    assert [7, 4] in held.tolist()
    assert held.max(axis=0).tolist() == [8, 4]


def test_slots_and_arrays_are_the_same_program():
    program = schedules.get("1f1b").order(4, 8, 1)[2]
    assert (program_array(program_slots(program)) == program).all()


@pytest.mark.parametrize(("name", "shape", "bound"), [("gpipe", (4, 8, 1), 33), ("interleaved-1f1b", (4, 8, 2), 57)])
def test_the_lower_bound_is_reached_by_equal_stages(name, shape, bound):
    (pp, micro_batches, vpp), stages = shape, shape[0] * shape[2]
    forward, backward = np.ones(stages), np.full(stages, 2.0)
    assert schedules.get(name).lower_bound(pp, micro_batches, vpp, forward, backward) == bound
    columns = schedules.get(name).lower_bound(pp, micro_batches, vpp, np.ones((stages, 3)), np.full((stages, 3), 2.0))
    assert np.asarray(columns).tolist() == [bound] * 3
