"""The task graph: levels, lanes, and what goes wrong in building one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.timeline.graph import GraphBuilder
from moesim.timeline.run import run


def chain(*tasks):
    builder = GraphBuilder()
    for task in tasks:
        builder.task(*task)
    return builder


@st.composite
def random_tasks(draw):
    """Tasks on lanes that wait for any of the tasks added before them, so that there is no circle."""
    count = draw(st.integers(1, 25))
    tasks: list[tuple[Any, ...]] = []
    for number in range(count):
        preds = draw(st.lists(st.integers(0, number - 1), max_size=4, unique=True)) if number else []
        delayed = [(pred, draw(st.integers(0, 2))) for pred in preds]
        tasks.append((number, draw(st.integers(0, 3)), draw(st.integers(0, 4)), [], delayed))
    return tasks


def naive_ends(tasks, durations, delays):
    ends: dict[int, float] = {}
    lane_free: dict[int, float] = {}
    for key, lane, row, _, delayed in tasks:
        start = max([lane_free.get(lane, 0.0), *(ends[pred] + delays[delay] for pred, delay in delayed)])
        ends[key] = lane_free[lane] = start + durations[row]
    return ends


@given(
    random_tasks(),
    st.lists(st.floats(0, 10), min_size=5, max_size=5),
    st.lists(st.floats(0, 3), min_size=2, max_size=2),
)
@settings(deadline=None)
def test_run_equals_a_task_by_task_simulation(tasks, durations, delays):
    graph = chain(*tasks).build()
    result = run(graph, durations, [0.0, *delays])
    expected = naive_ends(tasks, durations, [0.0, *delays])
    assert {key: result.end[graph.index(key)] for key in expected} == expected
    assert float(result.makespan) == max(expected.values())


@given(random_tasks())
@settings(deadline=None)
def test_levels_are_contiguous_and_one_above_what_they_wait_for(tasks):
    graph = chain(*tasks).build()
    level = np.empty(graph.num_tasks + 1, dtype=int)
    level[-1] = -1
    for number, tasks_of_level in enumerate(graph.levels):
        level[:-1][tasks_of_level] = number
    assert [part.start for part in graph.levels[1:]] == [part.stop for part in graph.levels[:-1]]
    assert (level[graph.preds].max(axis=1) + 1 == level[:-1]).all()


def test_tasks_of_a_lane_keep_their_order():
    graph = chain(("a", 0, 0), ("x", 1, 0), ("b", 0, 0, ["x"]), ("c", 0, 0)).build()
    assert [graph.keys[task] for task in graph.tasks_of(0)] == ["a", "b", "c"]


def test_a_task_may_wait_for_one_that_is_added_later():
    graph = chain(("early", 0, 0, ["late"]), ("late", 1, 0)).build()
    result = run(graph, [2.0])
    assert result.end[graph.index("early")] == 4.0


def test_an_empty_graph_takes_no_time():
    graph = GraphBuilder().build()
    assert graph.levels == ()
    assert float(run(graph, [1.0]).makespan) == 0.0


def test_a_circle_names_its_tasks():
    builder = chain(("free", 2, 0), ("a", 0, 0, ["b"]), ("b", 1, 0, ["c"]), ("c", 0, 0))
    with pytest.raises(ValueError, match=r"deadlock: (a waits for b waits for c waits for a|c waits for a)"):
        builder.build()


def test_a_long_circle_is_cut_short():
    tasks = [(number, number, 0, [(number + 1) % 50]) for number in range(50)]
    with pytest.raises(ValueError, match=r"deadlock: 0 waits for 1 .* waits for \.\.\. waits for 0"):
        chain(*tasks).build()


def test_a_key_is_added_once():
    with pytest.raises(ValueError, match="task a is added twice"):
        chain(("a", 0, 0), ("a", 0, 0))


def test_an_unknown_key_is_named():
    with pytest.raises(ValueError, match="task a waits for nobody, which is not in the graph"):
        chain(("a", 0, 0, ["nobody"])).build()
