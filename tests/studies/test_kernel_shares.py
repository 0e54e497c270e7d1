"""What a step's GPUs are busy with."""

import pytest

import moesim
from moesim.studies.kernel_shares import PRODUCTS, busy_by_category, outside_products


@pytest.fixture(scope="module")
def job():
    return moesim.load("qwen3-235b-h100x256")


def test_a_slow_host_changes_no_share(job):
    slow = job.with_changes({"software.host.framework_per_kernel": "x5"})
    assert moesim.estimate(slow).step_time_s > 2 * moesim.estimate(job).step_time_s
    assert outside_products(slow.plan()) == pytest.approx(outside_products(job.plan()), rel=1e-9)


def test_products_of_half_the_rate_take_a_larger_share(job):
    half = job.with_changes({"gpu.peak_flop_rate.bf16": "x0.5", "gpu.power": "2 kW"})
    assert outside_products(half.plan()) < outside_products(job.plan())


def test_products_of_the_busiest_rank_do_less_than_its_step(job):
    busy = busy_by_category(job.plan())
    products = sum(busy[name] for name in PRODUCTS) / job.strategy.pp
    assert 0 < products < moesim.estimate(job).step_time_s
    flop = job.plan().flop_per_token * job.global_batch * job.sequence_length / job.machine.num_gpus
    assert products > 0.8 * flop / job.machine.gpu.bf16_flop_rate
