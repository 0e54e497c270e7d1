"""The longest-path routine, its batches, and walks along a run."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.timeline.graph import GraphBuilder
from moesim.timeline.run import critical_path, lane_gaps, run
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph


def random_columns(step, columns, seed=0):
    generator = np.random.default_rng(seed)
    durations, delays = generator.random((step.num_rows, columns)), generator.random((step.num_delay_rows, columns)) / 4
    delays[0] = 0
    return durations, delays


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_scalar_run_has_the_bits_of_its_column(seed):
    step = step_graph(schedules.get("interleaved-1f1b"), 4, 8, 2, grad_reduce="overlap", param_gather="overlap")
    durations, delays = random_columns(step, 6, seed)
    batch = run(step.graph, durations, delays)
    for column in range(6):
        scalar = run(step.graph, durations[:, column], delays[:, column])
        assert (scalar.end == batch.end[:, column]).all()
        assert (scalar.start == batch.start[:, column]).all()
        assert scalar.makespan == batch.makespan[column] == batch.at(column).makespan


def test_a_batch_may_have_any_shape_and_is_broadcast():
    step = step_graph(schedules.get("1f1b"), 2, 4)
    durations, delays = random_columns(step, 6)
    whole = run(step.graph, durations.reshape(-1, 2, 3), delays[:, 0])
    assert whole.makespan.shape == (2, 3)
    assert whole.makespan[1, 2] == run(step.graph, durations[:, 5], delays[:, 0]).makespan
    assert whole.at(1, 2).makespan == whole.makespan[1, 2]
    crossed = run(step.graph, durations.reshape(-1, 6, 1), delays[:, None, :2])
    assert crossed.makespan[4, 1] == run(step.graph, durations[:, 4], delays[:, 1]).makespan


def test_no_delays_equal_zero_delays():
    step = step_graph(schedules.get("gpipe"), 4, 8)
    durations, _ = random_columns(step, 3)
    without, zero = run(step.graph, durations), run(step.graph, durations, np.zeros((step.num_delay_rows, 3)))
    assert (without.end == zero.end).all()
    assert without.delays.shape == zero.delays.shape


def test_4096_columns_at_once_are_far_faster_than_one_by_one():
    step = step_graph(schedules.get("1f1b"), 4, 8)
    durations, delays = random_columns(step, 4096)
    run(step.graph, durations, delays)

    def seconds(function):
        begin = time.perf_counter()
        function()
        return time.perf_counter() - begin

    batch = min(seconds(lambda: run(step.graph, durations, delays)) for _ in range(5))
    scalars = seconds(lambda: [run(step.graph, durations[:, i], delays[:, i]) for i in range(256)]) * 4096 / 256
    assert scalars > 30 * batch


@pytest.mark.parametrize(
    ("durations", "delays", "message"),
    [
        (np.zeros(7), None, "needs 8 rows of durations, not 7"),
        (np.zeros(8), np.zeros(1), "needs 4 rows of delays, not 1"),
        (np.zeros(8), np.ones(4), "row 0 of the delays"),
    ],
)
def test_wrong_rows_are_refused(durations, delays, message):
    step = step_graph(schedules.get("gpipe"), 4, 2, optimizer=False)
    with pytest.raises(ValueError, match=message):
        run(step.graph, durations, delays)


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_the_critical_path_adds_up_to_the_makespan(seed):
    step = step_graph(schedules.get("interleaved-1f1b"), 4, 8, 2, grad_reduce="overlap", param_gather="after")
    durations, delays = random_columns(step, 1, seed)
    result = run(step.graph, durations[:, 0], delays[:, 0])
    path = critical_path(result)
    assert result.start[path[0]] == 0
    assert result.end[path[-1]] == result.makespan
    total = durations[step.graph.duration_row[path], 0].sum()
    for before, task in itertools.pairwise(path):
        column = list(step.graph.preds[task]).index(before)
        delay = delays[step.graph.delay_row[task, column], 0]
        assert result.end[before] + delay == result.start[task]
        total += delay
    assert total == pytest.approx(result.makespan, rel=1e-12)


def test_ties_on_the_critical_path_prefer_the_same_lane():
    builder = GraphBuilder()
    builder.task("other", 0, 0)
    builder.task("same", 1, 0)
    builder.task("last", 1, 0, preds=["other"])
    graph = builder.build()
    assert [graph.keys[task] for task in critical_path(run(graph, [1.0]))] == ["same", "last"]


def test_the_path_of_an_empty_graph_is_empty():
    assert critical_path(run(GraphBuilder().build(), [])) == []


def test_gaps_name_what_was_waited_for():
    builder = GraphBuilder()
    builder.task("a", 0, 0)
    builder.task("slow", 1, 1)
    builder.task("b", 0, 0, delayed=[("slow", 1)])
    graph = builder.build()
    result = run(graph, [1.0, 4.0], [0.0, 0.5])
    (gap,) = lane_gaps(result, 0)
    assert (gap.start_s, gap.end_s, gap.delay_s) == (1.0, 4.5, 0.5)
    assert (graph.keys[gap.task], graph.keys[gap.pred]) == ("b", "slow")
    assert lane_gaps(result, 1) == lane_gaps(result, 7) == []
