"""What is not known of a step, drawn at random."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from moesim import intervals
from moesim.base.errors import SpecError
from moesim.cost.machine import Residuals
from moesim.cost.regimes import KERNELS
from moesim.report.uncertainty import CHANCE
from moesim.spec.calibration import NORMAL_95
from moesim.spec.provenance import KINDS
from moesim.studies import uncertainty as study
from moesim.studies.uncertainty import first_order, hypercube, uncertainty

ALONE = {"cluster.count": 1, "cluster.gpus": 1, "global_batch": 4, "tp": 1, "ep": 1, "pp": 1, "schedule": "none"}
HOST = ("framework_per_kernel", "kernel_launch", "device_sync", "library_call", "chunk")
FREE = {f"software.host.{name}": "0 s" for name in HOST}
SPREADS = ("moesim.studies.uncertainty.SPREADS", "moesim.intervals.SPREADS")


@pytest.fixture
def certain(small, monkeypatch):
    """One GPU with nothing beside its kernels, whose constants are not doubted."""
    for name in SPREADS:
        monkeypatch.setattr(name, dict.fromkeys(KINDS, 0.0))
    return small.with_changes(ALONE | FREE)


def with_residuals(problem, sigma):
    """The problem with one spread for all prices, of all families, and nothing else that is not known."""
    families = problem.machine.residuals
    known = {name: Residuals({"all": (-NORMAL_95 * sigma, 0.0, NORMAL_95 * sigma)}) for name in families}
    return replace(problem, machine=replace(problem.machine, residuals=known, step_errors={}))


@pytest.fixture(scope="module")
def sampled(small):
    return uncertainty(small, 500, seed=3)


def test_what_nobody_doubts_has_no_width(certain):
    found = uncertainty(with_residuals(certain, 0.0), 100)
    assert found.steps == pytest.approx(found.answer.step_time_s, rel=1e-12)
    assert (found.inputs, found.unexplained) == ((), 0.0)


def test_one_gpu_that_only_computes_is_off_as_much_as_its_kernels_together(certain):
    """Where nothing runs beside anything, the log of the step is the mean of the families' logs, by their time."""
    found = uncertainty(with_residuals(certain, 0.05), 2000)
    assert found.agrees
    assert found.log_error == pytest.approx(found.answer.interval.log_error, rel=0.05)
    for one in found.inputs:
        assert one.share == pytest.approx(one.analytic_share, abs=0.03)
    assert found.unexplained < 0.03
    assert {one.name for one in found.inputs} <= set(KERNELS)


def test_shares_add_up_and_the_largest_comes_first(sampled):
    shares = [one.share for one in sampled.inputs]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) + sampled.unexplained == pytest.approx(1, abs=0.05)
    ends = sampled.percentiles_s
    assert ends["p5"] < ends["p50"] < ends["p95"]
    assert len(sampled.steps) == 500
    assert np.isfinite(sampled.steps).all()


def test_shares_of_few_samples_are_scaled_to_one_and_say_so(qwen, sampled):
    tries = (uncertainty(qwen, 100, seed=seed) for seed in range(20))
    few = next(one for one in tries if one.added_up > 1 + CHANCE)
    assert sum(one.share for one in few.inputs) == pytest.approx(1)
    assert few.unexplained == 0
    told = f"added up to {few.added_up:.0%} and are scaled"
    assert told in str(few._repr_html_())
    assert sampled.added_up < 1 + CHANCE
    assert "are scaled" not in str(sampled._repr_html_())


def test_each_spread_says_what_it_follows_from(sampled):
    for one in sampled.inputs:
        if one.follows.endswith("that no calibration covers"):
            assert one.spread == intervals.SPREADS[one.kind]
        assert (one.spread is None) == one.follows.startswith("residuals")


def test_the_same_seed_is_the_same_answer(small, sampled):
    assert (uncertainty(small, 500, seed=3).steps == sampled.steps).all()
    other = uncertainty(small, 500, seed=4)
    assert (other.steps != sampled.steps).any()
    for name, value in other.percentiles_s.items():
        assert value == pytest.approx(
            sampled.percentiles_s[name], rel=0.1
        )  # three standard errors of a percentile of 500


def test_pieces_are_columns_of_one_batch(small, sampled, monkeypatch):
    monkeypatch.setattr(study, "PIECE", 64)
    assert uncertainty(small, 500, seed=3).steps == pytest.approx(sampled.steps, rel=1e-12)


def test_a_share_stays_a_share(small):
    plan = small.plan()
    path = "gpu.kernels.grouped_gemm_memory_efficiency"
    value = plan.machine.provenance[path].value
    assert study._bounded(plan, path, np.array([0.5, 10.0])) == pytest.approx([0.5, 1 / value])
    assert study._bounded(plan, "gpu.memory_bandwidth", np.array([10.0])) == pytest.approx([10.0])


def test_a_hypercube_has_every_part_once():
    drawn = hypercube(50, 3, 0)
    assert drawn.shape == (50, 3)
    whole = [NormalDist().inv_cdf((place + 0.5) / 50) for place in range(50)]
    for column in drawn.T:
        assert sorted(column) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("formula", "expected", "left"),
    [
        (lambda a, b: 3 * a + b, (0.9, 0.1), 0.0),
        (lambda a, b: a**2, (1.0, 0.0), 0.0),
        (lambda a, b: a * b, (0.0, 0.0), 1.0),
        (lambda a, b: 0 * a, (0.0, 0.0), 0.0),
        # Hermite coefficients of the larger of two: 1/2 and 1/(2 sqrt(pi) sqrt(2)); its variance is 1 - 1/pi
        (np.maximum, ((0.25 + 1 / (8 * np.pi)) / (1 - 1 / np.pi),) * 2, 0.15),
    ],
)
def test_first_order_shares(formula, expected, left):
    draws = hypercube(20000, 2, 1).T
    shares, rest = first_order(formula(*draws), list(draws))
    assert shares == pytest.approx(expected, abs=0.03)
    assert rest == pytest.approx(left, abs=0.04)


@pytest.mark.parametrize("samples", [0, 10, 10**7])
def test_too_few_and_too_many_samples_are_refused(small, samples):
    with pytest.raises(SpecError, match="--samples: "):
        uncertainty(small, samples)


def test_host_and_gpu_side_by_side_make_the_median_longer(qwen):
    """Errors of the longer of two things make the step longer either way."""
    found = uncertainty(qwen, 1000)
    assert found.percentiles_s["p50"] > found.answer.step_time_s
    assert math.log(found.ratios["high"]) > 0
