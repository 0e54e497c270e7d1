"""Whole lengths, lane by lane, against the run of the same graph."""

import numpy as np
import pytest

from moesim.timeline.run import run, run_whole
from moesim.timeline.schedules import find_schedule
from moesim.timeline.step import step_graph
from moesim.timeline.whole import whole_starts


@pytest.mark.parametrize(("name", "vpp"), [("1f1b", 1), ("interleaved-1f1b", 2), ("1f1b-v", 2), ("zb-h1", 1)])
def test_whole_lengths_end_where_a_run_ends(name, vpp):
    step = step_graph(find_schedule(name), 4, 16, vpp, grad_reduce="overlap", param_gather="after")
    lengths = np.arange(step.num_rows) % 4
    found, wanted = run_whole(step.graph, lengths), run(step.graph, lengths)
    np.testing.assert_array_equal(found.start, wanted.start)
    np.testing.assert_array_equal(found.end, wanted.end)


def test_lanes_that_never_settle_are_left_to_a_run():
    """Two tasks on two lanes that wait for each other."""
    assert whole_starts(np.array([0, 1]), np.array([[1], [0]]), np.ones(2, np.int64)) is None


def test_nothing_starts_nowhere():
    none = np.zeros(0, np.int64)
    assert whole_starts(none, none.reshape(0, 1), none).size == 0
