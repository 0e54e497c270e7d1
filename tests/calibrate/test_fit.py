"""Fits: known constants come back, outliers and few rows do no harm."""

import numpy as np
import pandas as pd
import pytest

from moesim.base.errors import SpecError
from moesim.calibrate.fit import Parameter, fitted, soft
from moesim.calibrate.score import interval, score, spreads
from moesim.calibrate.split import held_out, sample

SIZES = np.geomspace(1e3, 1e9, 60)
TRUE = {"rate": 2e12, "fixed": 5e-6}
PARAMETERS = (Parameter("rate", 1e12, 1e10, 1e14), Parameter("fixed", 1e-6, 1e-8, 1e-3))


def line(values, sizes=SIZES):
    return values["fixed"] + sizes / values["rate"]


def test_constants_come_back_with_outliers_among_the_rows():
    measured = line(TRUE) * np.exp(np.random.default_rng(1).normal(0, 0.02, len(SIZES)))
    measured[::9] *= 5
    found = fitted(line, measured, PARAMETERS)
    assert found.values["rate"] == pytest.approx(2e12, rel=0.05)
    assert found.values["fixed"] == pytest.approx(5e-6, rel=0.05)
    assert found.costs == tuple(sorted(found.costs))


def test_the_same_rows_give_the_same_constants():
    assert fitted(line, line(TRUE), PARAMETERS).values == fitted(line, line(TRUE), PARAMETERS).values


def test_few_rows_free_few_constants_and_stay_near_the_prior():
    wrong = line(TRUE)[:6] * np.array([1.5, 0.6, 1.2, 0.9, 1.4, 0.7])
    near = (Parameter("fixed", 5e-6, 1e-8, 1e-3, spread=0.1), Parameter("rate", 2e12, 1e10, 1e14, spread=0.1))
    third = (*near, Parameter("unused", 1.0, 0.1, 10))
    found = fitted(lambda values: line(values, SIZES[:6]), wrong, third)
    assert found.free == ("fixed", "rate")
    assert found.values["unused"] == 1.0
    assert found.values["fixed"] == pytest.approx(5e-6, rel=0.1)
    assert found.values["rate"] == pytest.approx(2e12, rel=0.05)  # rows this small say nothing about it


def test_too_few_rows_and_bad_times_are_one_line():
    with pytest.raises(SpecError, match="3 usable rows cannot hold 2 parameters; give at least 6"):
        fitted(line, np.ones(3), PARAMETERS)
    with pytest.raises(SpecError, match="not a positive number"):
        fitted(line, np.zeros(60), PARAMETERS)


def test_the_soft_loss_is_quadratic_below_and_linear_above():
    assert soft(np.array([1e-4]))[0] ** 2 == pytest.approx(1e-8, rel=1e-6)
    assert soft(np.array([1e4]))[0] ** 2 == pytest.approx(2e4, rel=1e-3)


def test_groups_stand_on_one_side_and_the_split_does_not_move():
    rows = pd.DataFrame({"a": np.repeat(np.arange(500), 3), "b": np.tile([1, 2, 3], 500)})
    out = held_out(rows, ["a"])
    assert 0.25 < out.mean() < 0.35
    assert (rows.assign(out=out).groupby("a")["out"].nunique() == 1).all()
    shuffled = rows.sample(frac=1, random_state=0)
    assert (held_out(shuffled, ["a"]) == out[shuffled.index]).all()
    assert len(sample(rows, 100, ["a", "b"])) == 100
    assert not (held_out(rows, ["a"], salt=1) == out).all()


def test_intervals_hold_nine_of_ten_rows():
    generator = np.random.default_rng(2)
    regimes = np.repeat(["small", "large"], 2000)
    spread = np.where(regimes == "small", 0.3, 0.03)
    measured = np.ones(4000)
    predicted = np.exp(generator.normal(0.02, spread))
    known = spreads(np.log(predicted / measured), regimes)
    found = score(predicted, measured, *interval(predicted, regimes, known))
    assert found.coverage == pytest.approx(0.9, abs=0.01)
    assert known["small"].sigma == pytest.approx(0.3, rel=0.05)
    assert known["large"].sigma == pytest.approx(0.03, rel=0.05)
