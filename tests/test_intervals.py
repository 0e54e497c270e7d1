"""The interval of an answer: what is off together adds up, what is not adds in quadrature, and nothing hides."""

import math
from dataclasses import replace

import numpy as np
import pytest

import moesim.intervals as intervals
from moesim.cost.blocks import price_blocks
from moesim.cost.certainty import GRADES
from moesim.cost.machine import Residuals
from moesim.cost.pipeline import step_times
from moesim.cost.regimes import KERNELS
from moesim.cost.uncertainty import PriceErrors, families
from moesim.estimator import estimate
from moesim.intervals import SPREADS, covered_by, evidence_grade, interval, listed
from moesim.result import Constant, Contribution
from moesim.spec.calibration import NORMAL_95
from moesim.spec.provenance import KINDS
from moesim.timeline.run import run

FREE = {f"software.host.{name}": "0 s" for name in ("framework_per_kernel", "kernel_launch", "device_sync")}
ALONE = FREE | {"tp": 1, "ep": 1, "pp": 1, "overlap_grad_reduce": False, "overlap_param_gather": False}


def of_sigma(sigma, stretch=1.0, **covered):
    return Residuals({"all": (-NORMAL_95 * sigma, 0.0, NORMAL_95 * sigma)}, covered, stretch)


def with_residuals(problem, residuals):
    return replace(problem, machine=replace(problem.machine, residuals=residuals))


def error_of(answer, name):
    return next((one.log_error for one in answer.interval.contributions if one.name == name), 0.0)


def test_the_interval_holds_the_estimate(estimates):
    for strategy, answer in estimates:
        assert answer.low_s < answer.step_time_s < answer.high_s, strategy
        assert answer.low_s * answer.high_s == pytest.approx(answer.step_time_s**2)
        assert answer.high_s / answer.step_time_s == pytest.approx(math.exp(1.6449 * answer.interval.log_error))


def test_independent_errors_add_in_quadrature(estimates):
    for _, answer in estimates:
        found = answer.interval
        assert found.log_error**2 == pytest.approx(sum(one.log_error**2 for one in found.contributions))
        assert sum(one.share for one in found.contributions) == pytest.approx(1)
        shares = [one.share for one in found.contributions]
        assert shares == sorted(shares, reverse=True)
        shown = listed(found)
        assert sum(one.log_error**2 for one in shown) == pytest.approx(found.log_error**2)


def test_what_nobody_doubts_has_no_width(small, monkeypatch):
    small = replace(small, machine=replace(small.machine, step_errors={}))
    exact = interval(small.machine, 2.0, dict.fromkeys(KERNELS, (2.0, 2.0)), ())
    assert exact.low_s == exact.high_s == 2.0
    monkeypatch.setattr(intervals, "SPREADS", dict.fromkeys(SPREADS, 0.0))
    answer = estimate(with_residuals(small, dict.fromkeys(KERNELS, of_sigma(0.0))))
    assert answer.low_s == answer.step_time_s == answer.high_s
    assert answer.interval.contributions == ()


def test_wider_residuals_are_never_narrower(small, sample):
    for strategy in sample(6, 11):
        before = estimate(small, strategy)
        for name, known in small.machine.residuals.items():
            wider = dict(small.machine.residuals) | {name: replace(known, stretch=2 * known.stretch)}
            after = estimate(with_residuals(small, wider), strategy)
            assert after.interval.log_error >= before.interval.log_error, (name, strategy)
            assert error_of(after, name) >= error_of(before, name)
            assert after.step_time_s == before.step_time_s


def test_operations_of_one_family_are_off_together(small):
    """Nothing overlaps: the step is the sum of its parts, and all GEMMs grow as one."""
    alone = small.with_changes(ALONE)
    answer = estimate(with_residuals(alone, {"gemm": of_sigma(0.1), "memory": of_sigma(0.2)}))
    parts = answer.breakdown_s
    grown = parts["gemm"] * math.expm1(0.1)
    assert error_of(answer, "gemm") == pytest.approx(math.log1p(grown / answer.step_time_s))
    grown = (parts["memory_bound"] + parts["optimizer"]) * math.expm1(0.2)
    assert error_of(answer, "memory") == pytest.approx(math.log1p(grown / answer.step_time_s))


def test_what_hides_behind_something_longer_does_not_count(small):
    """Prices are raised in the task graph: the same messages count less where they hide."""
    changes = {
        "pp": 1,
        "vpp": 1,
        "schedule": "none",
        "tp": 1,
        "ep": 8,
        "overlap_param_gather": False,
        "nic.bandwidth": "8 Tb/s",
    }
    seconds = []
    for overlap in (False, True):
        answer = estimate(small.with_changes(changes | {"overlap_grad_reduce": overlap}))
        seconds.append(answer.step_time_s * math.expm1(error_of(answer, "collectives-net")))
    after, beside = seconds
    assert 0 < beside < 0.7 * after


def test_a_column_is_the_run_with_those_prices(small, sample):
    for strategy in sample(5, 13):
        answer, plan = estimate(small, strategy), small.plan(strategy)
        for name in families(plan.machine, strategy.transport):
            errors = PriceErrors(plan.machine, strategy.transport, {name: (0, 0)}, 1)
            known = {one: value for one, value in plan.machine.residuals.items() if one == name}
            errors.machine = replace(plan.machine, residuals=known)
            one = replace(plan, errors=errors, shape=(1,))
            times = step_times(one, price_blocks(one))
            (raised,) = run(times.graph.graph, times.durations, times.delays).makespan
            error = np.log(raised / answer.step_time_s)
            assert error == pytest.approx(error_of(answer, name), abs=1e-12), (name, strategy)


def test_without_measurements_of_the_gpu_the_answer_is_marked(small):
    bare = estimate(with_residuals(small, {}))
    assert set(bare.interval.uncalibrated) >= {"gemm", "grouped-gemm", "attention", "memory", "collectives-net"}
    assert not any(one.family for one in bare.interval.contributions)
    named = {one.name for one in bare.interval.contributions}
    assert {"gpu.peak_flop_rate.bf16", "gpu.memory_bandwidth", "gpu.kernels.gemm_efficiency"} <= named
    assert estimate(small).interval.uncalibrated == ()


def test_outside_of_what_was_measured_the_spread_grows_and_the_grade_drops(small):
    alone = small.with_changes(ALONE)
    known = dict.fromkeys(KERNELS, of_sigma(0.1))
    inside = estimate(with_residuals(alone, known))
    far = estimate(with_residuals(alone, known | {"gemm": of_sigma(0.1, m=(1.0, 2.0))}))
    derived = estimate(with_residuals(alone, known | {"gemm": of_sigma(0.1, stretch=1.5)}))
    assert not inside.interval.outside
    assert {one.quantity for one in far.interval.outside} == {"m"}
    assert {one.family for one in far.interval.outside} == {"gemm"}
    assert all((one.low, one.high) == (1.0, 2.0) and float(one.value) > 2 for one in far.interval.outside)
    grades = {name: _evidence(answer, "gemm") for name, answer in (("in", inside), ("far", far), ("like", derived))}
    assert grades == {"in": "calibrated", "far": "datasheet", "like": "datasheet"}
    assert error_of(far, "gemm") > error_of(derived, "gemm")  # several powers of ten away
    assert error_of(far, "gemm") > error_of(inside, "gemm")


def _evidence(answer, name):
    return next(one.evidence for one in answer.interval.contributions if one.name == name)


def test_a_format_that_nobody_measured_is_marked(small):
    known = Residuals({"all": (-0.1, 0.0, 0.1), ">= 1e+11 FLOP 16-bit": (-0.1, 0.0, 0.1)})
    answer = estimate(with_residuals(small, {"gemm": known}))
    (one, *_) = answer.interval.outside
    assert (one.quantity, one.low, one.high) == ("regime", None, None)
    assert "16-bit" in str(one.value)


def test_a_number_set_by_hand_has_no_spread_but_lowers_the_grade(small):
    plain = estimate(small)
    setting = "software.host.framework_per_kernel"
    assert error_of(plain, setting) > 0
    told = estimate(small.with_changes({setting: "40 us"}))
    assert error_of(told, setting) == 0
    assert told.evidence == "assumed"


def test_the_grade_is_the_weakest_that_makes_some_of_the_variance(small):
    def constant(elasticity, by_hand):
        return Constant("gpu.x", "gpu.x", 1.0, elasticity, "assumed", "", by_hand)

    def graded(*parts, needs=()):
        found = tuple(Contribution(grade, share**0.5, share, grade, True) for grade, share in parts)
        return evidence_grade(replace(interval_of_nothing, contributions=found), needs)

    interval_of_nothing = interval(small.machine, 1.0, {}, ())
    assert graded(("calibrated", 0.96), ("assumed", 0.04)) == "calibrated"
    assert graded(("calibrated", 0.9), ("datasheet", 0.1)) == "datasheet"
    assert graded(("assumed", 0.06), ("datasheet", 0.94)) == "assumed"
    assert graded(needs=(constant(0.5, False),)) == "calibrated"
    assert graded(needs=(constant(0.5, True),)) == "assumed"
    assert graded(needs=(constant(0.01, True),)) == "calibrated"
    assert graded() in GRADES


def test_every_kind_of_evidence_has_a_spread():
    assert set(SPREADS) == set(KINDS)
    assert SPREADS["measured"] <= SPREADS["paper"] < SPREADS["derived"] < SPREADS["assumed"]


@pytest.mark.parametrize(
    ("path", "covering"),
    [
        ("gpu.kernels.gemm_efficiency", ("gemm",)),
        ("gpu.kernels.grouped_gemm_norm", ("grouped-gemm",)),
        ("gpu.kernels.quantize_efficiency", ("memory",)),
        ("gpu.kernels.attention_backward_rate", ()),
        ("gpu.rates.mxfp8-wgrad", ()),
        ("gpu.memory_bandwidth", KERNELS),
        ("links.nic_bandwidth", ("collectives-net",)),
        ("links.nvlink_bandwidth", ("collectives-node",)),
        ("links.fits.all-gather-ring-simple-net-latency", ("collectives-net",)),
        ("links.fits.all-reduce-nvls-simple-node-latency", ("collectives-node",)),
        ("transports.deepep.num_sms", ("transport-deepep",)),
        ("host.launch", ()),
    ],
)
def test_which_residuals_hold_the_error_of_a_constant(path, covering):
    assert covered_by(path) == covering


def test_every_constant_of_a_machine_has_a_place(qwen):
    known = {*KERNELS, "collectives-node", "collectives-net", "transport-deepep"}
    for constant in estimate(qwen).constants:
        assert set(covered_by(constant.path)) <= known
        assert covered_by(constant.path) or constant.path.startswith(
            ("host.", "gpu.power.", "links.collective_sms", "gpu.kernels.attention_backward", "gpu.rates.mxfp8-wgrad")
        )


def test_whole_steps_and_open_fields_widen_the_interval(small):
    """What published steps were off by stands beside the prices; a field counts only where nobody gave it."""
    machine = replace(small.machine, step_errors={"steps": 0.2, "overlap_tp": 0.05, "transport": 0.3})
    prices = dict.fromkeys(KERNELS, (2.0, 2.0))
    found = interval(machine, 2.0, prices, (), assumed=("strategy.overlap_tp", "cluster.nic", "strategy.layout"))
    parts = {one.name: (one.log_error, one.evidence) for one in found.contributions}
    assert parts == {intervals.MODEL_FORM: (0.2, "calibrated"), f"{intervals.FIELD}overlap_tp": (0.05, "assumed")}
    assert found.log_error == pytest.approx(math.hypot(0.2, 0.05))
    assert "published steps" in found.holds
    bare = interval(replace(machine, step_errors={}), 2.0, prices, (), assumed=("strategy.overlap_tp",))
    assert bare.log_error == 0
    assert "structure" in bare.lacks
