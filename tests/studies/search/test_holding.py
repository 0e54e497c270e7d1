"""What ranks hold in a short step is what they hold in a long one, for every schedule that says so."""

import numpy as np
import pytest

from moesim.studies.search.holding import Holdings, held_rows, largest_rows
from moesim.timeline.schedule import FILLED, Schedule, kept_chunks
from moesim.timeline.schedules import schedules


def held(schedule, pp, micro_batches, vpp, extra):
    """Fullest moments of each rank by stage, as the schedule's own program has them."""
    stages = pp * vpp * schedules.get(schedule).pipelines
    programs = Holdings().of(schedule, pp, micro_batches, vpp, extra)
    return [sorted(map(tuple, held_rows(program, np.arange(stages), stages).tolist())) for program in programs]


@pytest.mark.parametrize("name", schedules.names())
def test_rows_are_those_of_the_chunks_that_an_estimate_counts(name):
    item = schedules.get(name)
    pp, vpp = 4, item.chunks or 3
    kind = np.arange(pp * vpp * item.pipelines) % 2
    for micro_batches in (one for one in (8, 12, 40) if not item.constraints(pp, one, vpp)):
        for program in item.order(pp, micro_batches, vpp):
            stages, whole, waiting = kept_chunks(program)
            fold = np.eye(2, dtype=np.int64)[kind[stages]]
            wanted = largest_rows(np.unique(np.hstack([whole @ fold, waiting @ fold]), axis=0))
            assert sorted(held_rows(program, kind, 2).tolist()) == sorted(wanted.tolist())


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
