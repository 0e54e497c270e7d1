"""Constants of kernels at their bounds: what is divided by is more than 0, a share is at most 1."""

from typing import get_args

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.problem import from_names
from moesim.spec.hardware import KernelConstants
from moesim.spec.provenance import Positive, Share, Sourced

MACHINE = ("qwen3-235b-a22b", "hgx-b200:8")


def kind_of(name: str) -> type[Sourced]:
    annotation = KernelConstants.model_fields[name].annotation
    return next(
        one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, Sourced)
    )


NAMES = {name: kind_of(name) for name in KernelConstants.model_fields}
DIVISORS = [name for name, kind in NAMES.items() if kind.positive]


def test_divisors_are_known():
    assert {"gemm_efficiency", "attention_efficiency", "attention_norm", "memory_l2", "gemm_power_onset"} <= set(
        DIVISORS
    )
    assert len(DIVISORS) > 30


@pytest.mark.parametrize("name", DIVISORS)
def test_what_is_divided_by_is_more_than_nothing(name):
    unit = f" {'FLOP' if name == 'gemm_power_onset' else ''}".rstrip()
    with pytest.raises(SpecError, match="out of range; write a finite value of more than 0") as caught:
        from_names(*MACHINE).with_changes({f"gpu.kernels.{name}": f"0{unit}"})
    assert len(caught.value.issues) == 1


@pytest.mark.parametrize("name", [name for name, kind in NAMES.items() if issubclass(kind, Share)])
def test_a_share_is_at_most_one(name):
    with pytest.raises(SpecError, match="at most 1"):
        from_names(*MACHINE).with_changes({f"gpu.kernels.{name}": "1.01"})


def test_everything_else_may_be_nothing():
    free = {
        f"gpu.kernels.{name}": 0.0
        for name, kind in NAMES.items()
        if not issubclass(kind, Positive) and not kind.dimension
    }
    answer = estimate(from_names(*MACHINE).with_changes(free))
    assert np.isfinite(answer.step_time_s)
    assert answer.step_time_s > 0
