"""Factors fitted to whole steps, and widths of their intervals: found again on made-up steps, judged without their group."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.calibrate.fit import Parameter
from moesim.calibrate.steps import (
    Linear,
    can_be_fitted,
    errors_without_each,
    fit_steps,
    spread_rows,
    step_error,
    without_each,
)

PARAMETERS = [Parameter("host", 1.0, 0.2, 5.0, 0.5), Parameter("tensor", 1.0, 0.6, 1.1, 0.1)]


def made_up(factors, groups=12, noise=0.0, seed=0):
    """Steps of three runs a group whose logarithm grows with the logarithms of both factors."""
    draw = np.random.default_rng(seed)
    names = np.repeat([f"g{index}" for index in range(groups)], 3)
    slopes = draw.uniform([0.0, -1.0], [0.5, -0.3], (len(names), 2))
    log_steps = draw.normal(size=len(names))
    measured = np.exp(log_steps + slopes @ np.log(factors) + noise * draw.normal(size=len(names)))
    return Linear(log_steps, slopes, np.zeros(2), measured, names)


def test_factors_are_found_again():
    found = fit_steps(made_up([1.8, 0.9]), PARAMETERS)
    assert found["host"] == pytest.approx(1.8, rel=0.05)
    assert found["tensor"] == pytest.approx(0.9, rel=0.02)


def test_steps_that_say_nothing_leave_the_sources_alone():
    near = made_up([1.0, 1.0])
    silent = replace(near, slopes=0 * near.slopes, measured=2 * near.measured)
    assert fit_steps(silent, PARAMETERS) == pytest.approx({"host": 1.0, "tensor": 1.0})


def test_a_large_group_counts_less_than_its_rows():
    one, many = made_up([1.0, 1.0], groups=4, seed=1), made_up([1.0, 0.8], groups=4, seed=2)
    same = np.full(len(many.groups), "sweep")
    names = ("log_steps", "slopes", "measured", "groups")
    joined = {name: np.concatenate([getattr(one, name), getattr(many, name)]) for name in names}
    both = Linear(**joined, point=one.point)
    swept = replace(both, groups=np.concatenate([one.groups, same]))
    assert fit_steps(swept, PARAMETERS)["tensor"] > fit_steps(both, PARAMETERS)["tensor"]


def test_a_group_is_judged_by_the_others():
    near = made_up([1.5, 0.9])
    odd = near.groups == "g3"
    measured = np.where(odd, 1.6 * near.measured, near.measured)
    folds = without_each(replace(near, measured=measured), PARAMETERS)
    assert set(folds) == set(near.groups)
    assert folds["g3"] == pytest.approx(fit_steps(near.rows(~odd), PARAMETERS), rel=1e-3)
    assert folds["g4"] != pytest.approx(folds["g3"], rel=1e-3)


def test_what_is_too_little_to_fit():
    assert not can_be_fitted(np.repeat(["a", "b"], 20))
    assert not can_be_fitted(np.array(["a"] * 30 + ["b", "c"]))  # without a, two rows are left
    assert can_be_fitted(np.repeat(["a", "b", "c"], 4))


@pytest.mark.parametrize("prices", [0.0, 0.1])
def test_the_width_holds_nine_of_ten_steps(prices):
    draw = np.random.default_rng(3)
    errors = draw.normal(scale=np.hypot(0.2, prices), size=20_000)
    sigma = step_error(errors, np.full(errors.shape, prices**2))
    assert sigma == pytest.approx(0.2, rel=0.03)


def test_prices_that_are_wide_enough_need_no_more():
    assert step_error(np.array([0.1, -0.1, 0.05]), np.full(3, 0.2**2)) == 0.0


def test_few_steps_are_taken_wider():
    errors = np.linspace(-0.3, 0.3, 9)
    assert step_error(errors, np.zeros(9)) == pytest.approx(0.3 / 1.6449, rel=1e-3)


def test_a_width_does_not_know_its_own_group():
    groups = np.repeat(["a", "b", "c", "d"], 4)
    errors = np.where(groups == "d", 1.0, 0.1)
    found = errors_without_each(errors, np.zeros(16), np.full(16, "k"), groups)
    assert found["d"] == pytest.approx(0.1 / 1.6449, rel=1e-3)
    assert found["a"] == pytest.approx(1.0 / 1.6449, rel=1e-3)


def test_a_kind_with_few_groups_takes_the_rows_of_all():
    groups, kinds = np.repeat(["a", "b", "c", "d"], 4), np.repeat(["x", "x", "x", "y"], 4)
    assert spread_rows(kinds, groups, "y").all()
    assert spread_rows(kinds, groups, "x").sum() == 12
    assert spread_rows(kinds, groups, "x", without="a").sum() == 12  # two groups are too few: all but a
