"""Adapters in a step: memory, time, messages, refusals."""

import pytest

from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.memory import rank_memory
from moesim.cost.replication import gradient_messages
from moesim.estimator import estimate
from moesim.evaluator import evaluate

LORA = {"adapter": "lora:8"}
QLORA = {"adapter": "qlora:8"}


def memory(problem, rank=1, **changes):
    plan = problem.plan(problem.strategy.replace(**changes))
    return plan, rank_memory(plan, price_blocks(plan))[rank].classes


def test_only_the_adapters_have_gradients_and_moments(small):
    plan, found = memory(small, dp_sharding="ddp", overlap_param_gather=False, **LORA)
    # two layers: query, key and value, output on tp 2
    trained = 2 * 8 * (2048 + 1024 + 2 * (2048 + 256) + 1024 + 2048)
    assert plan.trained[1].total == trained
    assert found["gradients"] == 4 * trained
    assert found["optimizer"] == 12 * trained
    assert found["weights"] == pytest.approx(2 * (plan.params[1].total + trained))
    assert sum(message.size for message in gradient_messages(plan, plan.trained[1])) == 4 * trained


def test_four_bits_shrink_the_frozen_matrices_alone(small):
    plan, found = memory(small, rank=0, **QLORA)
    params = plan.params[0]
    frozen = 4.127 / 8 * (params.total - params.plain) + 2 * params.plain
    assert found["weights"] == pytest.approx(frozen + 2 * plan.trained[0].total)


def test_weights_in_four_bits_stand_in_16_while_their_product_runs(small):
    plain, quantised = (
        rank_memory(plan, price_blocks(plan))[1].phases["backward"]["workspace"]
        for plan in (small.plan(small.strategy.replace(**changes)) for changes in (LORA, QLORA))
    )
    assert quantised - plain == pytest.approx(2 * 4 * 2048 * 2 * 768)  # up and gate of the four local experts


def test_sharded_frozen_weights_are_gathered_and_only_the_adapters_are_reduced(small):
    fsdp = {"dp_sharding": "fsdp", "overlap_param_gather": False}
    plan = small.plan(small.strategy.replace(**fsdp, **LORA))
    for priced in price_blocks(plan).values():
        sizes = {op.name: op.work.size for op in priced.block.forward + priced.block.backward if op.category == "dp"}
        assert sizes["weights-dense"] == pytest.approx(2 * (priced.params.dense + priced.trained.dense))
        assert sizes["gradients-dense"] == 4 * priced.trained.dense


def test_frozen_weights_save_time_and_memory_and_four_bits_cost_time(small):
    whole, lora, qlora = (estimate(small, small.strategy.replace(**changes)) for changes in ({}, LORA, QLORA))
    assert lora.step_time_s < whole.step_time_s
    assert lora.memory.peak_bytes < whole.memory.peak_bytes
    assert qlora.step_time_s > lora.step_time_s
    assert qlora.memory.peak_bytes < lora.memory.peak_bytes
    assert lora.breakdown_s["dp"] < whole.breakdown_s["dp"]
    assert sum(qlora.breakdown_s.values()) == pytest.approx(qlora.step_time_s, rel=1e-12)


def test_a_higher_rank_costs_more(small):
    low, high = (estimate(small, small.strategy.replace(adapter=f"lora:{rank}")) for rank in (8, 256))
    assert high.step_time_s > low.step_time_s
    assert high.memory.peak_bytes > low.memory.peak_bytes


@pytest.mark.parametrize("adapter", ["lora:8", "qlora:8", "bottleneck:64"])
@pytest.mark.parametrize("targets", ["attention", "linear"])
def test_every_kind_of_layer_and_schedule_can_be_adapted(variants, adapter, targets):
    if adapter.startswith("bottleneck") and targets == "linear":
        return
    for problem in variants.values():
        for changes in ({}, {"dp_sharding": "fsdp", "overlap_param_gather": False}, {"recompute": ("full",)}):
            strategy = problem.strategy.replace(adapter=adapter, adapter_targets=targets, **changes)
            found = estimate(problem, strategy)
            assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s, rel=1e-12)
            batch = evaluate(problem, [strategy])
            assert batch.step_time_s[0] == pytest.approx(found.step_time_s, rel=1e-12)


def test_a_split_backward_can_be_adapted(free):
    strategy = free.strategy.replace(schedule="zb-h1", **LORA)
    assert estimate(free, strategy).step_time_s < estimate(free, free.strategy.replace(schedule="zb-h1")).step_time_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapter": "lora"}, r"has no rank from 1 .*adapter-rank"),
        ({"adapter": "lora:0"}, "adapter-rank"),
        ({"adapter": "lorra:4"}, "no adapter 'lorra'"),
        ({"adapter_targets": "linear"}, "adapter-targets"),
        ({"adapter": "bottleneck:8", "adapter_targets": "linear"}, "adapter-targets"),
        ({"adapter": "lora:4", "adapter_targets": "all"}, "no adapter_targets 'all'"),
        ({"adapter": "lora:4", "optimizer": "muon"}, "adapter-optimizer"),
        ({"adapter": "lora:4", "overlap_tp": True}, "adapter-overlap-tp"),
        ({"adapter": "qlora:4", "precision": "fp8-current"}, "adapter-precision"),
    ],
)
def test_what_does_not_go_together_is_refused(small, changes, message):
    with pytest.raises(SpecError, match=message):
        estimate(small.with_changes(changes))
