"""Every shipped scenario is a complete question, and its answer adds up. No values: those are in ``golden/``."""

import pytest

import moesim
from moesim.cost.memory import CLASSES, TENSORS
from moesim.spec import library
from moesim.spec.check import sources

RUNS = library.names("runs")
NAMES = [*library.names("scenarios"), *RUNS]
OUT_OF_MEMORY = {"olmo-8l07", "olmo-8l08"}
"""Runs whose source says that they did not fit."""
FAMILIES = {"mbsk-00": 6, "zoo-": 12, "olmo-p": 13, "olmo-8l": 12, "olmo-ep": 2, "olmo-4g": 4, "sc21-": 6, "kor-": 2}
each_scenario = pytest.mark.parametrize("name", NAMES)


@each_scenario
def test_step_and_peak_are_the_sums_of_their_parts(name):
    estimate = moesim.estimate(moesim.load(name))
    assert estimate.step_time_s > 0
    assert sum(estimate.breakdown_s.values()) == pytest.approx(estimate.step_time_s, rel=1e-9)
    memory = estimate.memory
    for stage in memory.stages:
        assert sum(stage[f"{part}_bytes"] for part in CLASSES) == pytest.approx(stage["peak_bytes"], rel=1e-9)
    assert memory.peak_bytes == max(stage["peak_bytes"] for stage in memory.stages)
    allocated = max(sum(stage[f"{part}_bytes"] for part in TENSORS) for stage in memory.stages)
    assert memory.allocated_peak_bytes == pytest.approx(allocated, rel=1e-9)
    assert memory.allocated_peak_bytes <= memory.reserved_peak_bytes <= memory.peak_bytes


FITTED_ALL_THE_SAME = {"tt-047"}
"""4 % too large; neither its GPU nor what it recomputes is printed. It leaves this set as soon as it is right."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OUT_OF_MEMORY])
def test_a_run_that_fitted_is_predicted_to_fit(name):
    problem = moesim.load(name)
    assert moesim.evaluate(problem, [problem.strategy]).fits.all() == (name not in FITTED_ALL_THE_SAME)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_names_itself_its_source_and_what_was_measured(name):
    spec = library.get("runs", name)
    assert spec.measured is not None
    assert str(spec.measured.run_id).lower() == name
    assert spec.measured.source in sources()
    assert spec.measured.note
    assert spec.summary


@pytest.mark.parametrize("name", RUNS)
def test_measured_tokens_and_step_time_are_one_measurement(name):
    problem = moesim.load(name)
    measured = problem.measured
    assert measured is not None
    if measured.step_time is not None and measured.tokens_per_s_per_gpu is not None:
        tokens = measured.step_time * measured.tokens_per_s_per_gpu * problem.machine.num_gpus
        assert tokens == pytest.approx(problem.global_batch * problem.sequence_length, rel=0.005)


@pytest.mark.parametrize(("start", "count"), FAMILIES.items())
def test_every_run_of_a_family_is_there(start, count):
    assert len([name for name in RUNS if name.startswith(start)]) == count


def test_the_runs_of_the_recomputation_ladder_differ_in_nothing_else():
    steps = [moesim.load(f"mbsk-00{place}").strategy.replace(recompute=()) for place in range(1, 7)]
    assert len(set(steps)) == 1
