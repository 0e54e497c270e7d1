"""The same job on other numbers of nodes, and what whole runs take."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.studies.budget import DAY, budget
from moesim.studies.scaling import scaled


@pytest.fixture(scope="module")
def job():
    return moesim.load("qwen3-235b-h100x256")


def test_the_job_itself_is_one_of_the_points(job):
    (point,) = scaled(job, [32])
    answer = moesim.estimate(job)
    assert (point.gpus, point.efficiency) == (256, 1)
    assert point.answer.step_time_s == pytest.approx(answer.step_time_s, rel=1e-12)


def test_strong_scaling_never_gains_efficiency(job):
    points = scaled(job, [32, 64, 128])
    assert [point.global_batch for point in points] == [2048] * 3
    efficiencies = [point.efficiency or 0.0 for point in points]
    assert efficiencies == sorted(efficiencies, reverse=True)
    for point in points:
        assert point.tokens_per_s == pytest.approx(2048 * 4096 / point.answer.step_time_s, rel=1e-12)


def test_weak_scaling_keeps_the_micro_batches(job):
    one, two = scaled(job, [32, 64], "batch-per-gpu")
    assert two.global_batch == 2 * one.global_batch
    assert two.answer.step_time_s >= one.answer.step_time_s * (1 - 1e-9)


def test_what_is_illegal_is_kept_with_its_reason(job):
    refused, legal = scaled(job, [16, 32])
    assert refused.answer is None
    assert "expert-ranks" in refused.refused[0]
    assert legal.efficiency == 1
    with pytest.raises(SpecError, match="expert-ranks"):
        scaled(job, [16])


def test_a_run_takes_its_steps(job):
    found = budget(job, tokens=2e12, goodput=0.5, price_per_gpu_hour=2.0, deadline_s=60 * DAY)
    (cost,) = found.costs
    steps = 2e12 / (2048 * 4096)
    assert cost.seconds == pytest.approx(2 * steps * moesim.estimate(job).step_time_s, rel=1e-12)
    assert cost.gpu_hours == pytest.approx(256 * cost.seconds / 3600)
    assert cost.money == pytest.approx(2 * cost.gpu_hours)
    assert cost.low_s < cost.seconds < cost.high_s
    assert cost.meets is (cost.seconds <= 60 * DAY)


def money(job: moesim.Problem, price: float, goodput: float = 1.0) -> float:
    found = budget(job, 1e12, goodput=goodput, price_per_gpu_hour=price).costs[0].money
    assert found is not None
    return found


def test_energy_is_that_of_the_power_limit(job):
    (cost,), (less,) = (budget(one, 1e12).costs for one in (job, job.with_changes({"gpu.power": "500 W"})))
    assert cost.energy_j == pytest.approx(1.1 * 256 * 700 * cost.seconds)
    assert less.energy_j == pytest.approx(1.1 * 256 * 500 * less.seconds)


def test_money_moves_as_told(job):
    base, dearer = (money(job, price) for price in (2.0, 2.2))
    moved = budget(job, 1e12, price_per_gpu_hour=2.0).sensitivity
    assert dearer / base - 1 == pytest.approx(moved["price_per_gpu_hour"])
    assert base / money(job, 2.0, goodput=1 / 1.1) - 1 == pytest.approx(moved["goodput"])
