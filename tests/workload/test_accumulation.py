"""Gradients of a micro-batch: added into the buffer of the step by a kernel of its own, or copied to be reduced."""

from dataclasses import replace

import pytest

from moesim.cost.blocks import price_blocks
from moesim.estimator import estimate
from moesim.workload.accumulation import STAGED, added_gradients
from moesim.workload.ops import Gemm, Traffic

SEPARATE = {"software.runtime.grad_accumulation": "main-grad-add"}
ONE = {"tp": 1, "pp": 1, "schedule": "none", "sequence_parallel": False, "dp_sharding": "zero1"}


def first_layer(problem, **changes):
    plan = problem.plan(problem.strategy.replace(**ONE | {"overlap_param_gather": False} | changes))
    return next(block for name, block in price_blocks(plan).items() if not isinstance(name, str))


def additions(block):
    return [op.op.work for op in block.backward if op.op.name.endswith("-add")]


def test_every_weight_is_added_once_a_micro_batch(free):
    """A read of the gradient, a read and a write of the buffer: 10 bytes of each weight in a matrix, at FP32."""
    block = first_layer(free.with_changes(SEPARATE))
    weights = sum(
        float(op.op.work.groups * op.op.work.m * op.op.work.n)
        for op in block.backward
        if isinstance(op.op.work, Gemm) and op.op.held_bytes is not None
    )
    assert sum(float(work.hbm_bytes) for work in additions(block)) == pytest.approx(10 * weights, rel=1e-12)
    assert weights == pytest.approx(float(block.params.total), rel=0.01)  # norms are in no matrix
    low = first_layer(free.with_changes(SEPARATE | {"grad_dtype": "bf16"}))
    assert sum(float(work.hbm_bytes) for work in additions(low)) == pytest.approx(6 * weights, rel=1e-12)


def test_experts_that_stay_local_are_added_everywhere(free):
    """The same tokens meet each expert; where every rank holds all of them, every rank adds all their gradients."""
    separate = free.with_changes(SEPARATE)
    alone, spread = (sum(float(w.hbm_bytes) for w in additions(first_layer(separate, ep=ep))) for ep in (1, 8))
    assert alone > 2 * spread


def test_the_gemm_leaves_bf16_and_the_sum_is_slower_by_what_is_told(free):
    plain, slow = (
        first_layer(free.with_changes(SEPARATE | {"software.runtime.grad_add_slowdown": str(factor)}))
        for factor in (1, 3)
    )
    assert not any(op.op.work.accumulate for op in plain.backward if isinstance(op.op.work, Gemm))
    for one, other in zip(plain.backward, slow.backward, strict=True):
        factor = 3 if one.op.name.endswith("-add") else 1
        assert float(other.seconds) == pytest.approx(factor * float(one.seconds), rel=1e-12)


def test_halves_are_summed_in_bf16_before_they_are_added(free):
    whole, halves, waves = (
        added_gradients(first_layer(free).whole, 4.0, 2.0, *parts).backward for parts in ((), (2,), (1, 4))
    )
    for one, half, wave in zip(whole, halves, waves, strict=True):
        if not one.name.endswith("-add"):
            continue
        assert isinstance(one.work, Traffic)
        weights = float(one.work.hbm_bytes) / 10
        assert 2 * half.work.hbm_bytes * half.work.slowdown == pytest.approx((2 * 10 + 6) * weights)
        routed = "expert-" in one.name
        parts = 4 if routed else 1
        assert parts * wave.work.hbm_bytes * wave.work.slowdown == pytest.approx((20 + 6 * (parts - 1)) * weights)


def test_sharded_gradients_and_fused_additions_have_none(free):
    assert additions(first_layer(free)) == []
    assert additions(first_layer(free.with_changes(SEPARATE), dp_sharding="fsdp")) == []


@pytest.mark.parametrize("changes", [{}, {"pp": 2, "schedule": "1f1b"}, {"delay_wgrad": True}, {"adapter": "lora:8"}])
def test_it_takes_longer_under_every_order_of_the_backward(free, changes):
    strategy = free.strategy.replace(**ONE | {"overlap_param_gather": False, "micro_batch": 1} | changes)
    fused = estimate(free, strategy)
    separate = estimate(free.with_changes(SEPARATE), strategy)
    assert separate.step_time_s > fused.step_time_s
    assert sum(separate.breakdown_s.values()) == pytest.approx(separate.step_time_s, rel=1e-9)


SPLIT = {"dp_sharding": "fsdp"}
BUCKET = {"software.runtime.grad_bucket": "true"}


def bucketed(problem):
    """The problem with a bucket of the runtime, and still without the rules of a framework."""
    return replace(problem.with_changes(BUCKET), software=problem.software)


def staged(block):
    return [op for op in block.backward if op.op.name == STAGED]


@pytest.mark.parametrize("sharding", ["zero2", "fsdp", "hsdp"])
@pytest.mark.parametrize(("dtype", "num_bytes"), [("fp32", 6), ("bf16", 4)])
def test_split_gradients_are_copied_once_and_added_to_nothing(free, sharding, dtype, num_bytes):
    """A read in BF16 and a write as it is reduced, of every weight that the reductions carry."""
    block = first_layer(free, dp_sharding=sharding, grad_dtype=dtype)
    (copy,) = staged(block)
    assert float(copy.op.work.hbm_bytes) == pytest.approx(num_bytes * float(block.params.total), rel=1e-12)
    reduced = sum(float(op.op.work.size) for op in block.backward if op.op.name.startswith("gradients-") and op != copy)
    assert reduced == pytest.approx(float(copy.op.work.hbm_bytes) * (num_bytes - 2) / num_bytes, rel=1e-12)
    assert not any(op.op.work.accumulate for op in block.backward if isinstance(op.op.work, Gemm))
    assert [op.op.category for op in staged(first_layer(bucketed(free), dp_sharding=sharding))] == ["dp"]


@pytest.mark.parametrize("sharding", ["ddp", "zero1"])
def test_whole_gradients_are_added_by_their_gemm(free, sharding):
    block = first_layer(free, dp_sharding=sharding)
    assert not staged(block)
    assert any(op.op.work.accumulate for op in block.backward if isinstance(op.op.work, Gemm))


@pytest.mark.parametrize("bucket", [False, True])
def test_a_product_that_adds_to_nothing_is_no_slower(free, bucket):
    problem = bucketed(free) if bucket else free
    whole, split = (first_layer(problem, dp_sharding=sharding) for sharding in ("zero1", "fsdp"))
    plain = {op.op.name: float(op.seconds) for op in split.backward}
    slower = [float(op.seconds) - plain[op.op.name] for op in whole.backward if isinstance(op.op.work, Gemm)]
    assert min(slower) >= 0 < max(slower)


def test_only_trained_weights_are_copied(free):
    block = first_layer(free, adapter="lora:8", **SPLIT)
    (copy,) = staged(block)
    assert float(copy.op.work.hbm_bytes) == pytest.approx(6 * float(block.trained.total), rel=1e-12)
    assert block.trained.total < 0.1 * block.params.total


def test_gradients_stand_twice_while_a_block_runs_unless_in_the_bucket_of_the_runtime(free):
    """Of the largest block 2 bytes as they leave the product and 4 as they are reduced, beside two gathered blocks."""
    strategy = free.strategy.replace(**ONE | SPLIT | {"overlap_param_gather": False})
    blocks = price_blocks(free.plan(strategy))
    largest = max(float(block.params.total) for block in blocks.values())
    own, bucket = (estimate(problem, strategy).memory.stages[0] for problem in (free, bucketed(free)))
    assert own["unsharded_bytes"] == pytest.approx((2 * 2 + 2 + 4) * largest)
    assert bucket["unsharded_bytes"] == pytest.approx((2 * 2 + 2) * largest)


@pytest.mark.parametrize("changes", [{}, {"pp": 2, "schedule": "zb-h1"}, {"overlap_grad_reduce": False}])
@pytest.mark.parametrize("bucket", [False, True])
def test_a_step_with_split_gradients_adds_up(free, changes, bucket):
    problem = bucketed(free) if bucket else free
    strategy = free.strategy.replace(**ONE | SPLIT | {"overlap_param_gather": False, "micro_batch": 1} | changes)
    answer = estimate(problem, strategy)
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-12)
    assert min(answer.exposed_s.values()) >= -1e-12
