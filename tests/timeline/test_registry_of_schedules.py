"""A schedule is one new file: a toy from a temporary module is listed, runs, and is as long as its paper says."""

import importlib.util
import sys

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.timeline.run import run
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph
from moesim.timeline.walk import held_chunks, idle_fraction

TOY = '''
from moesim.timeline.schedule import Op, Schedule, Slot
from moesim.timeline.schedules import schedules


class ToyZeroBubble(Schedule):
    """1F1B with split backwards; rank r begins with weight gradients once more than r of them wait."""

    def order(self, pp, micro_batches, vpp, extra_warmup=0):
        return [self.program(rank, pp, micro_batches) for rank in range(pp)]

    def program(self, rank, pp, micro_batches):
        warmup = min(micro_batches, pp - 1 - rank)
        slots, waiting = [Slot(Op.F, rank, i) for i in range(warmup)], []
        for i in range(micro_batches):
            if i + warmup < micro_batches:
                slots.append(Slot(Op.F, rank, i + warmup))
            slots.append(Slot(Op.B, rank, i))
            waiting.append(Slot(Op.W, rank, i))
            if len(waiting) > rank or i + warmup >= micro_batches:
                slots.append(waiting.pop(0))
        return slots + waiting


schedules.add("toy-zero-bubble", ToyZeroBubble(), summary="a toy", source="qi2024, ZB-H1")
'''


@pytest.fixture
def toy(tmp_path):
    path = tmp_path / "toy_schedule.py"
    path.write_text(TOY)
    spec = importlib.util.spec_from_file_location("toy_schedule", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toy_schedule"] = module
    spec.loader.exec_module(module)
    yield "toy-zero-bubble"
    schedules.remove("toy-zero-bubble")
    del sys.modules["toy_schedule"]


def test_the_schedules_that_stand():
    assert {"none", "gpipe", "1f1b", "interleaved-1f1b"} <= set(schedules.names())
    assert all(entry.summary and entry.source for entry in schedules.entries())


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(SpecError, match="no pipeline schedule 'interleave-1f1b'; did you mean 'interleaved-1f1b'"):
        schedules.get("interleave-1f1b")


@pytest.mark.parametrize(("pp", "micro_batches", "makespan"), [(2, 4, 13), (4, 8, 27), (4, 16, 51), (8, 16, 55)])
def test_a_toy_schedule_is_found_and_runs(toy, pp, micro_batches, makespan):
    assert toy in schedules.names()
    schedule = schedules.get(toy)
    step = step_graph(schedule, pp, micro_batches, optimizer=False)
    result = run(step.graph, np.ones(step.num_rows))
    assert float(result.makespan) == makespan
    assert idle_fraction(step, result) == pytest.approx((pp - 1) / makespan)
    assert held_chunks(step, result) == schedule.in_flight(pp, micro_batches, 1)


def test_a_removed_schedule_is_unknown():
    assert "toy-zero-bubble" not in schedules
