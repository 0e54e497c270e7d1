"""What every registered pipeline schedule keeps to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.base.errors import Violation
from moesim.timeline.run import critical_path, run
from moesim.timeline.schedule import Op, program_slots
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph
from moesim.timeline.walk import events, held_chunks, idle_fraction, last_rank, walk_rank

NAMES = schedules.names()
MICRO_BATCHES = [1, 2, 3, 5, 7, 8, 9, 12, 16, 24, 32]


def legal_shapes(name):
    """Shapes up to 16 ranks that the schedule accepts: a few micro-batch counts and multiples of the ranks."""
    for pp in range(1, 17):
        for micro_batches in sorted({*MICRO_BATCHES, *(pp * rounds for rounds in range(1, 5))}):
            for vpp in (1, 2, 3, 4):
                if not schedules.get(name).constraints(pp, micro_batches, vpp):
                    yield pp, micro_batches, vpp


SHAPES = {name: list(legal_shapes(name)) for name in NAMES}
SMALL = [(name, shape) for name in NAMES for shape in SHAPES[name] if shape[0] * shape[1] * shape[2] <= 96]
each_schedule = pytest.mark.parametrize("name", NAMES)


def random_run(case, seed, *, columns=(), **options):
    name, shape = case
    step = step_graph(schedules.get(name), *shape, **options)
    generator = np.random.default_rng(seed)
    delays = generator.random((step.num_delay_rows, *columns)) / 4
    delays[0] = 0
    return step, generator.random((step.num_rows, *columns)) + 0.1, delays


@each_schedule
def test_it_has_legal_shapes_and_explains_the_illegal_ones(name):
    assert SHAPES[name]
    schedule = schedules.get(name)
    for shape in [(2, 5, 1), (1, 4, 1), (4, 9, 2), (4, 8, 2), (3, 3, 3)]:
        for violation in schedule.constraints(*shape):
            assert isinstance(violation, Violation)
            assert violation.rule.startswith(name)
            assert violation.message
            assert violation.legal


@each_schedule
def test_every_stage_has_a_rank_and_every_rank_as_many_stages(name):
    for pp, _, vpp in SHAPES[name]:
        ranks = schedules.get(name).stage_rank(pp, vpp)
        assert len(ranks) % pp == 0
        assert np.bincount(ranks, minlength=pp).tolist() == [len(ranks) // pp] * pp


@each_schedule
def test_every_stage_runs_every_micro_batch_forward_and_backward(name):
    for pp, micro_batches, vpp in SHAPES[name]:
        schedule = schedules.get(name)
        work = [slot[:3] for program in schedule.order(pp, micro_batches, vpp) for slot in program_slots(program)]
        assert len(work) == len(set(work))
        stages, pipelines = len(schedule.stage_rank(pp, vpp)), schedule.pipelines
        share, length = micro_batches // pipelines, stages // pipelines
        cells = {(q, q // length * share + i) for q in range(stages) for i in range(share)}
        assert {slot[1:] for slot in work if slot[0] == Op.F} == cells
        assert {slot[1:] for slot in work if slot[0] in (Op.BW, Op.B)} == cells
        assert {slot[1:] for slot in work if slot[0] == Op.W} == {slot[1:] for slot in work if slot[0] == Op.B}


@each_schedule
def test_in_flight_is_what_the_graph_holds(name):
    for shape in SHAPES[name]:
        step = step_graph(schedules.get(name), *shape, optimizer=False)
        held = held_chunks(step, run(step.graph, np.ones(step.num_rows)))
        assert held == schedules.get(name).in_flight(*shape), shape


@each_schedule
@pytest.mark.parametrize("extra_warmup", [1, 2])
def test_in_flight_with_extra_warm_up_is_what_the_graph_holds(name, extra_warmup):
    for pp, micro_batches, vpp in SHAPES[name][::3]:
        step = step_graph(schedules.get(name), pp, micro_batches, vpp, extra_warmup=extra_warmup, optimizer=False)
        held = held_chunks(step, run(step.graph, np.ones(step.num_rows)))
        assert held == schedules.get(name).in_flight(pp, micro_batches, vpp, extra_warmup)


def work_of_stages(step, durations):
    """Seconds of each stage, forward and backward; a backward takes as long whole as it does in two parts."""
    for kind, q in step.rows:
        if kind == "BW" and ("B", q) in step.rows:
            durations[step.rows["BW", q]] = durations[step.rows["B", q]] + durations[step.rows["W", q]]
    backward = [
        durations[step.rows["BW", q]]
        if ("BW", q) in step.rows
        else durations[step.rows["B", q]] + durations[step.rows["W", q]]
        for q in range(step.num_stages)
    ]
    return durations[[step.rows["F", q] for q in range(step.num_stages)]], np.array(backward)


@given(st.sampled_from(SMALL), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_the_lower_bound_never_exceeds_the_run(case, seed):
    name, (pp, micro_batches, vpp) = case
    step, durations, delays = random_run(case, seed, columns=(4,), optimizer=False)
    forward, backward = work_of_stages(step, durations)
    bound = np.asarray(schedules.get(name).lower_bound(pp, micro_batches, vpp, forward, backward))
    assert (bound <= run(step.graph, durations).makespan * (1 + 1e-12)).all()
    assert (bound <= run(step.graph, durations, delays).makespan * (1 + 1e-12)).all()
    for column in range(4):
        own = schedules.get(name).lower_bound(pp, micro_batches, vpp, forward[:, column], backward[:, column])
        assert own == bound[column]


@given(st.sampled_from(SMALL), st.booleans(), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_more_time_anywhere_never_shortens_the_step(case, merge_pairs, seed):
    options = {"merge_pairs": merge_pairs, "extra_warmup": 1, "grad_reduce": "overlap", "param_gather": "overlap"}
    step, durations, delays = random_run(case, seed, **options)
    base = run(step.graph, durations, delays).makespan
    longer = durations[:, None] + 0.5 * np.eye(step.num_rows)
    assert (run(step.graph, longer, delays).makespan >= base).all()
    later = delays[:, None] + 0.5 * np.eye(step.num_delay_rows)[:, 1:]
    assert (run(step.graph, durations, later).makespan >= base).all()


@given(st.sampled_from(SMALL), st.booleans(), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_scalar_run_is_a_column_of_a_batch(case, merge_pairs, seed):
    step, durations, delays = random_run(case, seed, columns=(3,), merge_pairs=merge_pairs, grad_reduce="after")
    batch = run(step.graph, durations, delays)
    for column in range(3):
        scalar = run(step.graph, durations[:, column], delays[:, column])
        assert (scalar.end == batch.end[:, column]).all()
        assert idle_fraction(step, scalar) == pytest.approx(np.asarray(idle_fraction(step, batch))[column], rel=1e-12)


@given(st.sampled_from(SMALL), st.booleans(), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_what_is_drawn_is_what_is_reported(case, merge_pairs, seed):
    step, durations, delays = random_run(case, seed, merge_pairs=merge_pairs, extra_warmup=1, param_gather="after")
    result = run(step.graph, durations, delays)
    drawn, flows = events(step, result)
    assert max(event.end_s for event in drawn) == pytest.approx(result.makespan, rel=1e-15)
    assert all(drawn[flow.source].rank != drawn[flow.target].rank for flow in flows)
    line = walk_rank(step, result, last_rank(step, result))
    assert sum(segment.seconds for segment in line) == pytest.approx(result.makespan, rel=1e-12)
    path = critical_path(result)
    assert result.start[path[0]] == 0
    assert result.end[path[-1]] == result.makespan


@each_schedule
def test_a_merged_step_can_run(name):
    for shape in SHAPES[name][::3]:
        for extra_warmup in (0, 1):
            step = step_graph(schedules.get(name), *shape, merge_pairs=True, extra_warmup=extra_warmup)
            seconds = [{"OV": 3.0, "F": 1.0, "BW": 2.0, "B": 1.0, "W": 1.0}.get(kind, 0.0) for kind, _ in step.rows]
            assert run(step.graph, seconds).makespan >= 3 * shape[1] * shape[2]


@each_schedule
def test_what_it_says_of_itself_is_what_its_programs_do(name):
    schedule = schedules.get(name)
    pp, micro_batches, vpp = SHAPES[name][len(SHAPES[name]) // 2]
    slots = [slot for program in schedule.order(pp, micro_batches, vpp) for slot in program_slots(program)]
    assert schedule.splits == any(slot.op == Op.W for slot in slots)
    assert schedule.pairs == any(s.paired for p in schedule.order(pp, micro_batches, vpp, 1) for s in program_slots(p))
    assert len(schedule.stage_rank(pp, vpp)) == pp * vpp * schedule.pipelines
    assert schedule.chunks in (None, vpp)
    assert {shape[2] for shape in SHAPES[name]} == ({schedule.chunks} if schedule.chunks else {2, 3, 4})
