"""Random strategies: refused by a rule with a name, or answered with numbers that hold."""

import random
from dataclasses import replace

import pytest

from moesim.estimator import estimate
from moesim.spec.methods import METHODS
from moesim.studies.fuzz import draw, faults, outcome, pools, used
from moesim.workload.strategy import DTYPE_BYTES, FIELDS, OFF


@pytest.fixture(scope="module")
def problems(variants, free):
    """Small models of all kinds, each also with a framework that has every method."""
    apart = [replace(problem, software=free.software) for problem in variants.values()]
    return [*variants.values(), *apart, *apart]


def test_every_field_of_a_strategy_is_drawn():
    choices = pools()
    assert set(FIELDS) == set(choices)
    assert set(METHODS) <= set(choices)
    for name in METHODS:
        assert any(value != OFF[name] for value in choices[name]), name


@pytest.mark.parametrize("seed", range(6))
def test_a_random_strategy_is_refused_by_name_or_answered(problems, seed):
    pick, choices, answered = random.Random(seed), pools(), 0
    for _ in range(100):
        problem = pick.choice(problems)
        strategy = draw(problem, pick, choices)
        found = outcome(problem, strategy)
        assert not found.wrong, strategy
        answered += not found.refused
    assert 5 < answered < 95


def test_the_same_seed_draws_the_same(small):
    one, other = ([draw(small, random.Random(3)) for _ in range(3)] for _ in range(2))
    assert one == other
    assert used([small.strategy]) >= {"ep", "pp"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"step_time_s": float("nan")}, "step_time_s = nan"),
        ({"step_time_s": 0.0}, "takes no time"),
        ({"breakdown_s": {"gemm": 1.0}}, "does not add up to the step"),
        ({"low_s": 1e9}, "outside of its interval"),
        ({"exposed_s": {"ep": 1e9}}, "exposed for longer"),
        ({"feasible": False}, "feasible"),
    ],
)
def test_an_answer_that_does_not_hold_is_found(small, change, what):
    whole = estimate(small)
    assert faults(whole) == []
    assert any(what in fault for fault in faults(replace(whole, **change)))


def test_memory_that_does_not_add_up_is_found(small):
    whole = estimate(small)
    stages = [dict(stage) for stage in whole.memory.stages]
    stages[1]["weights_bytes"] *= 2
    found = faults(replace(whole, memory=replace(whole.memory, stages=tuple(stages))))
    assert found == ["memory of rank 1 does not add up"]
    stages[1]["peak_bytes"] *= 3
    assert "the peak is not that of the largest rank" in faults(
        replace(whole, memory=replace(whole.memory, stages=tuple(stages)))
    )
    assert set(DTYPE_BYTES) == set(pools()["param_dtype"])
