"""What ranks hold in a short step is what they hold in a long one, for every schedule that says so."""

import numpy as np
import pytest

from moesim.studies.search.holding import Holdings, largest_rows
from moesim.timeline.schedule import FILLED, Schedule
from moesim.timeline.schedules import schedules


def held(schedule, pp, micro_batches, vpp, extra):
    """Stages and fullest moments of each rank, as the schedule's own program has them."""
    ranks = Holdings().of(schedule, pp, micro_batches, vpp, extra)
    return [
        (rank.stages.tolist(), sorted(map(tuple, largest_rows(np.hstack([rank.whole, rank.waiting])).tolist())))
        for rank in ranks
    ]


@pytest.mark.parametrize("name", schedules.names())
def test_what_a_short_step_holds_is_what_a_long_one_does(name, monkeypatch):
    item = schedules.get(name)
    shorter = 0
    for pp, vpp, extra in ((1, 1, 1), (2, 1, 0), (4, 1, 1), (2, 2, 1), (3, 2, 0), (4, 2, 1), (3, 3, 0), (4, 3, 1)):
        for micro_batches in range(FILLED * pp + 1, 5 * pp + 3):
            if item.constraints(pp, micro_batches, vpp):
                continue
            alike = item.alike(pp, micro_batches, vpp)
            assert not item.constraints(pp, alike, vpp)
            short = held(name, pp, micro_batches, vpp, extra)
            with monkeypatch.context() as patch:
                patch.setattr(type(item), "alike", lambda self, pp, micro_batches, vpp: micro_batches)
                assert short == held(name, pp, micro_batches, vpp, extra)
            shorter += alike < micro_batches
    assert (shorter > 0) == (name != "gpipe")


def test_a_schedule_that_says_nothing_is_counted_in_full():
    assert Schedule.alike(schedules.get("gpipe"), 2, 100, 1) == 100
