"""How gradients are reduced: buckets, compression, one step late."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.compression import compression_time, error_feedback_bytes, low_rank_factors
from moesim.cost.memory import rank_memory
from moesim.cost.memory_bound import traffic_time
from moesim.cost.pipeline import step_times
from moesim.cost.replication import (
    gather_messages,
    gradient_buckets,
    gradient_messages,
    gradient_reduction_time,
    stage_messages,
    stage_reduction_time,
)
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.workload.sharding import RankParams

DDP = {"dp_sharding": "ddp", "overlap_param_gather": False}
MIB = 2.0**20


def on_slow_links(problem, bandwidth):
    """The problem with another rate of its NICs, and still without the rules of a framework."""
    return replace(problem.with_changes({"overrides.nic.bandwidth": bandwidth}), software=problem.software)


def plan(problem, **changes):
    return problem.plan(problem.strategy.replace(**changes))


def test_12_5_billion_gradients_are_46_55_gib_and_their_weights_23_28(free):
    made, params = plan(free, **DDP), RankParams(12.496e9)
    assert gradient_messages(made, params)[0].size / 2**30 == pytest.approx(46.55, rel=0.001)
    assert gather_messages(made, params)[0].size / 2**30 == pytest.approx(23.28, rel=0.001)


def test_a_bucket_is_a_message_of_its_own(free):
    made = plan(free, grad_bucket_bytes=25 * MIB, **DDP)
    params = RankParams(1e8)
    buckets = np.ceil(4e8 / (25 * MIB))
    assert gradient_buckets(made, params) == {"dense": buckets, "routed": 1.0}
    group = made.machine.group(made.mesh, "dp-cp")
    one = collective_time("all-reduce", 4e8 / buckets, group, made.machine.links)
    assert one > made.machine.host.launch
    assert gradient_reduction_time(made, params) == pytest.approx(buckets * one)


def test_small_buckets_cost_latency_and_large_ones_the_last(free):
    sizes = (1e4, 1e6, 25 * MIB, 1e12)
    total = [gradient_reduction_time(plan(free, grad_bucket_bytes=size, **DDP), RankParams(1e8)) for size in sizes]
    assert total == sorted(total, reverse=True)
    whole = plan(free, **DDP)
    assert total[-1] == gradient_reduction_time(whole, RankParams(1e8))

    def exposed(size):
        made = plan(free, grad_bucket_bytes=size, overlap_grad_reduce=True, **DDP)
        times = step_times(made, price_blocks(made))
        return float(times.durations[times.graph.rows["reduce", 1]]), float(stage_reduction_time(made, 1))

    last, everything = exposed(1e12)
    assert everything > last >= everything / 2  # one bucket of each kind, taken as equal
    assert exposed(25 * MIB)[0] < last


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_a_cast_halves_the_bytes_and_moves_12_of_each_value(free, name):
    plain, cast = plan(free, **DDP), plan(free, grad_compression=name, **DDP)
    sizes = [[message.size for message in stage_messages(made, 1)] for made in (plain, cast)]
    assert sizes[1] == [size / 2 for size in sizes[0]]
    assert compression_time(cast, 1) == traffic_time(12 * cast.trained[1].total, cast.machine.gpu)
    assert compression_time(plain, 1) == 0


def test_powersgd_sends_r_n_and_r_m_of_each_matrix(free):
    made = plan(free, grad_compression="powersgd:4", **DDP)
    factors = low_rank_factors(made, 1, 4)
    # two layers on tp 2: query, key and value by columns, output by rows; the router whole; 4 experts of 3 matrices
    rows = 2048 + 2 * 2048 + 1024 + 2048
    columns = 1024 + 2 * 256 + 2048 + 32
    assert factors.left.dense == 2 * 4 * rows
    assert factors.right.dense == 2 * 4 * columns
    assert factors.left.routed + factors.right.routed == 2 * 4 * 4 * 3 * (2048 + 768)
    assert factors.rest.total == made.trained[1].plain
    assert factors.compressed.total + factors.rest.total == made.trained[1].total
    assert sum(message.size for message in stage_messages(made, 1)) == pytest.approx(
        4 * (factors.left.total + factors.right.total + factors.rest.total)
    )
    assert error_feedback_bytes(made, 1) == 4 * (factors.compressed.total + factors.left.total + factors.right.total)


def test_a_matrix_that_would_not_shrink_travels_whole(free):
    factors = low_rank_factors(plan(free, grad_compression="powersgd:1024", **DDP), 1, 1024)
    assert factors.compressed.total == 0
    assert factors.rest.total == plan(free).trained[1].total


def test_gradients_one_step_late_hide_and_take_a_second_buffer(free):
    after = {"overlap_grad_reduce": False, **DDP}
    late, plain = (estimate(free, free.strategy.replace(stale_gradients=flag, **after)) for flag in (True, False))
    made = plan(free, **after)
    longest = max(float(stage_reduction_time(made, stage)) for stage in range(4))
    assert plain.step_time_s - late.step_time_s == pytest.approx(longest, rel=0.3)
    assert late.exposed_s["dp"] == pytest.approx(0.0, abs=1e-9)
    for slow, fast in zip(plain.memory.stages, late.memory.stages, strict=True):
        assert fast["gradients_bytes"] == 2 * slow["gradients_bytes"]
    assert sum(late.breakdown_s.values()) == pytest.approx(late.step_time_s, rel=1e-12)


def test_a_reduction_longer_than_the_step_is_what_a_late_one_takes(free):
    slow = on_slow_links(free, "1 Gb/s")
    made = plan(slow, stale_gradients=True, **DDP)
    found = estimate(slow, slow.strategy.replace(stale_gradients=True, **DDP))
    longest = max(float(stage_reduction_time(made, stage)) for stage in range(4))
    assert found.step_time_s > longest
    assert found.breakdown_s["dp"] > 0.3 * found.step_time_s


@pytest.mark.parametrize(
    "changes",
    [
        {"grad_bucket_bytes": 25 * MIB},
        {"grad_compression": "bf16"},
        {"grad_compression": "powersgd:8"},
        {"stale_gradients": True},
        {"grad_bucket_bytes": 1e6, "grad_compression": "powersgd:8", "stale_gradients": True},
    ],
)
def test_a_batch_is_each_of_its_strategies(free, changes):
    strategies = [free.strategy.replace(ep=ep, tp=tp, **DDP, **changes) for ep in (4, 8) for tp in (1, 2)]
    batch = evaluate(free, strategies)
    for strategy, seconds, peak in zip(strategies, batch.step_time_s, batch.peak_bytes, strict=True):
        one = estimate(free, strategy)
        assert one.step_time_s == pytest.approx(seconds, rel=1e-12)
        assert one.memory.peak_bytes == pytest.approx(peak, rel=1e-12)


def test_fewer_bytes_take_less_time_and_error_feedback_takes_memory(free):
    slow = on_slow_links(free, "20 Gb/s")
    base = {"overlap_grad_reduce": False, **DDP}
    plain, cast, factors = (
        estimate(slow, slow.strategy.replace(grad_compression=name, **base)) for name in ("none", "fp16", "powersgd:4")
    )
    assert plain.step_time_s > cast.step_time_s > factors.step_time_s
    assert factors.memory.stages[0]["gradients_bytes"] > 1.9 * plain.memory.stages[0]["gradients_bytes"]
    made = slow.plan(slow.strategy.replace(grad_compression="fp16", **base))
    ranks = rank_memory(made, price_blocks(made))
    assert ranks[1].phases["backward"]["unsharded"] == pytest.approx(2 * made.trained[1].total)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grad_compression": "fp61"}, "no gradient compression 'fp61'"),
        ({"grad_compression": "powersgd", **DDP}, "compression-rank"),
        ({"grad_compression": "powersgd:0", **DDP}, "compression-rank"),
        ({"grad_compression": "fp16:4"}, "compression-rank"),
        ({"grad_compression": "powersgd:4"}, "compression-reduction"),
        ({"grad_compression": "fp16", "grad_dtype": "bf16"}, "compression-dtype"),
        ({"grad_compression": "powersgd:4", "adapter": "lora:4", **DDP}, "compression-adapter"),
        ({"grad_compression": "fp16", "dp_sharding": "fsdp", "overlap_param_gather": False}, "compression-sharding"),
        ({"stale_gradients": True, "dp_sharding": "zero2"}, "stale-sharding"),
        ({"grad_bucket_bytes": "1 MiB", "dp_sharding": "zero2"}, "bucket-sharding"),
        ({"grad_bucket_bytes": "0 B"}, "bucket-size"),
        ({"grad_bucket_bytes": "25"}, "grad_bucket_bytes"),
    ],
)
def test_what_cannot_be_is_refused(free, changes, message):
    with pytest.raises(SpecError, match=message):
        estimate(free.with_changes(changes))


def test_a_framework_without_hooks_refuses_them(small):
    for changes in ({"grad_compression": "bf16"}, {"stale_gradients": True}):
        with pytest.raises(SpecError, match="megatron-core: gradients-as-they-are"):
            estimate(small.with_changes(changes))
