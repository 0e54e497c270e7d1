"""Methods of training state: alone at their off setting they change nothing, together they are refused or priced."""

import math
import random

import pytest

from moesim.cost.memory import CLASSES
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.spec.methods import METHODS
from moesim.workload.strategy import OFF

CHOICES = {
    "optimizer": ("adam", "muon", "sgd", "sgd-momentum"),
    "adapter": ("none", "none", "lora:8", "qlora:4", "bottleneck:16"),
    "adapter_targets": ("attention", "attention", "linear"),
    "activation_offload": (0.0, 0.0, 0.3, 1.0),
    "optimizer_offload": (0.0, 0.0, 0.5, 1.0),
    "expert_offload": (0.0, 0.0, 0.5, 1.0),
    "grad_bucket_bytes": (None, None, 26214400.0, 1e6),
    "grad_compression": ("none", "none", "fp16", "bf16", "powersgd:4"),
    "stale_gradients": (False, False, True),
}


def test_every_optional_method_of_state_is_drawn():
    assert set(CHOICES) <= set(METHODS)
    for name, values in CHOICES.items():
        assert OFF[name] == values[0]


@pytest.mark.parametrize("field", CHOICES)
def test_a_method_that_is_off_changes_nothing(small, field):
    off = small.with_changes({field: CHOICES[field][0]}) if CHOICES[field][0] is not None else small
    plain, same = estimate(small), estimate(off)
    assert same.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
    assert same.breakdown_s == pytest.approx(plain.breakdown_s, rel=1e-12, abs=1e-15)
    assert same.memory == plain.memory
    assert same.strategy == plain.strategy


def test_combinations_are_refused_by_name_or_priced(free, sample):
    pick, priced, refused = random.Random(3), 0, 0
    for strategy in sample(220, 11):
        drawn = strategy.replace(**{name: pick.choice(values) for name, values in CHOICES.items()})
        broken = free.check(drawn)
        batch = evaluate(free, [drawn])
        assert bool(batch.legal[0]) == (not broken)
        if broken:
            refused += 1
            assert all(one.violation.rule and one.violation.message and one.violation.legal for one in broken)
            continue
        priced += 1
        assert math.isfinite(batch.step_time_s[0])
        assert batch.step_time_s[0] > 0
        if priced > 25:
            continue  # the walk of a critical path takes longer than the step
        answer = estimate(free, drawn)
        assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9)
        assert answer.step_time_s == pytest.approx(float(batch.step_time_s[0]), rel=1e-12)
        for stage in answer.memory.stages:
            assert sum(stage[f"{name}_bytes"] for name in CLASSES) == pytest.approx(stage["peak_bytes"])
            assert all(value >= 0 for value in stage.values())
    assert priced > 20
    assert refused > 20
