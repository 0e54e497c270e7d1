"""Intervals between checkpoints and goodput: limits, optima, published figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moesim.studies.goodput import (
    availability_interval,
    daly_interval,
    goodput,
    job_mtbf,
    wasted_shares,
    young_interval,
)

SAVES = st.floats(1e-2, 1e3)
MTBFS = st.floats(1e4, 1e7)
RESTARTS = st.floats(0, 1e4)


def test_ten_thousand_parts_of_a_hundred_days_fail_every_14_minutes():
    assert job_mtbf([(10_000, 100 * 86400.0)]) / 60 == pytest.approx(14.4)


def test_the_parts_of_a_job_add_their_rates():
    assert 1 / job_mtbf([(8, 100.0), (1, 50.0)]) == pytest.approx(8 / 100 + 1 / 50)


@given(save=SAVES, mtbf=MTBFS, restart=RESTARTS)
def test_the_availability_interval_is_where_the_job_computes_most(save, mtbf, restart):
    best = float(availability_interval(save, mtbf, restart))

    def availability(interval):
        return (1 - save / interval) / (mtbf + restart + interval / 2)

    assert availability(best) >= max(availability(best * 1.01), availability(max(best / 1.01, save * 1.001)))


@given(save=st.floats(1e-2, 10), mtbf=st.floats(1e6, 1e8))
def test_all_intervals_agree_where_failures_are_rare(save, mtbf):
    young, daly = float(young_interval(save, mtbf)), float(daly_interval(save, mtbf))
    assert daly == pytest.approx(young, rel=0.01)
    assert float(availability_interval(save, mtbf, 0.0)) == pytest.approx(young, rel=0.01)


@given(save=SAVES, mtbf=MTBFS, restart=st.floats(0, 600))
def test_no_other_interval_has_a_better_goodput_than_dalys_by_much(save, mtbf, restart):
    best = goodput(daly_interval(save, mtbf), save, mtbf, restart)
    others = goodput(np.geomspace(1.0, 1e6, 400), save, mtbf, restart)
    assert others.max() <= best * 1.003


@given(interval=st.floats(100, 1000), save=st.floats(0, 10), mtbf=st.floats(1e6, 1e8), restart=st.floats(0, 600))
def test_goodput_is_one_minus_what_is_wasted_while_that_is_little(interval, save, mtbf, restart):
    wasted = float(sum(wasted_shares(interval, save, mtbf, restart).values()))
    assert goodput(interval, save, mtbf, restart) == pytest.approx(1 - wasted, abs=wasted**2 + 1e-9)


@given(interval=st.floats(10, 1e5), save=SAVES, mtbf=MTBFS, restart=RESTARTS, more=st.floats(1, 10))
def test_faster_saves_and_rarer_failures_never_hurt(interval, save, mtbf, restart, more):
    now = goodput(interval, save, mtbf, restart)
    assert 0 <= now <= 1
    assert goodput(interval, save / more, mtbf, restart) >= now
    assert goodput(interval, save, mtbf * more, restart) >= now * (1 - 1e-12)
    assert goodput(interval, save, mtbf, restart * more) <= now
