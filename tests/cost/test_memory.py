"""Memory of each pipeline rank, class by class."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.blocks import price_blocks
from moesim.cost.memory import CLASSES, TENSORS, rank_memory
from moesim.cost.plan import Plan
from moesim.workload.layers import saved_bytes

MIB = 2**20


def ranks(plan: Plan):
    return rank_memory(plan, price_blocks(plan))


def memory(problem, **changes):
    return ranks(problem.plan(problem.strategy.replace(**changes)))


def kept_by_a_layer(plan):
    return saved_bytes(price_blocks(plan)[plan.model.layers[0]].block)


def test_activations_are_the_chunks_in_flight(small):
    plan = small.plan(small.strategy.replace(pp=4, schedule="1f1b"))
    layer = kept_by_a_layer(plan)
    found = [float(rank.classes["activations"]) for rank in ranks(plan)]
    head_input = 2 * 2048 * 2048 * (1 + 1 / 2)  # the gathered input of the LM head and the rank's shard of it
    assert found == pytest.approx([4 * 2 * layer, 3 * 2 * layer, 2 * 2 * layer, 2 * layer + head_input], rel=1e-12)


def test_gpipe_keeps_every_micro_batch(small):
    plan = small.plan(small.strategy.replace(pp=4, schedule="gpipe"))
    assert plan.num_micro_batches == 16
    assert ranks(plan)[1].classes["activations"] == pytest.approx(16 * 2 * kept_by_a_layer(plan), rel=1e-12)


def test_interleaving_keeps_more_chunks_of_fewer_layers(small):
    plan = small.plan(small.strategy.replace(pp=4, vpp=2, schedule="interleaved-1f1b"))
    chunks = [4 + 2 * (4 - 1 - rank) + 1 for rank in range(4)]  # (v - 1) p + 2 (p - 1 - r) + 1
    found = [float(rank.classes["activations"]) for rank in ranks(plan)][:3]
    assert found == pytest.approx([count * kept_by_a_layer(plan) for count in chunks[:3]], rel=1e-12)


def test_logits_are_on_the_last_rank_only(small):
    found = [float(rank.classes["logits"]) for rank in memory(small, pp=4, schedule="1f1b")]
    assert found == [0, 0, 0, (2 + 4) * 2048 * 32_000 / 2]


def test_no_pipeline_holds_one_micro_batch(small):
    plan = small.plan(small.strategy.replace(pp=1, schedule="none", micro_batch=2))
    (rank,) = ranks(plan)
    head_input = 2 * 2 * 2048 * 2048 * (1 + 1 / 2)
    assert rank.classes["activations"] == pytest.approx(8 * kept_by_a_layer(plan) + head_input, rel=1e-12)


def test_the_distributed_optimizer_saves_optimizer_state_and_nothing_else(small):
    ddp = memory(small, dp_sharding="ddp", overlap_param_gather=False)
    zero = memory(small, dp_sharding="zero1")
    plan = small.plan()
    for plain, sharded, params in zip(ddp, zero, plan.params, strict=True):
        assert plain.classes["optimizer"] == 12 * params.total
        owned = params.dense / plan.mesh.dp + params.routed / plan.mesh.edp
        assert sharded.classes["optimizer"] == pytest.approx(12 * owned, rel=1e-14)
        different = {name for name in plain.classes if plain.classes[name] != sharded.classes[name]}
        assert different == {"optimizer"}


def test_the_classes_add_up_level_by_level(small):
    for rank in memory(small):
        assert set(rank.classes) == set(CLASSES)
        assert rank.allocated == pytest.approx(sum(rank.classes[name] for name in TENSORS), rel=1e-15)
        assert rank.reserved == rank.allocated + rank.classes["slack"]
        assert rank.peak == pytest.approx(sum(rank.classes.values()), rel=1e-15)
        assert rank.allocated < rank.reserved < rank.peak


def test_a_communicator_takes_its_buffers_where_it_has_two_ranks(small):
    each = 192 * MIB
    # tp 2, dp 8, ep 8, edp 2, pp 4; etp has one rank
    assert {float(rank.classes["nccl"]) for rank in memory(small)} == {5 * each}
    alone = memory(small, tp=1, ep=1, pp=1, schedule="none")
    assert [float(rank.classes["nccl"]) for rank in alone] == [2 * each]  # dense and expert replicas


def test_transport_buffers_are_there_while_experts_are_spread(small):
    spread = memory(small, transport="deepep")
    assert {float(rank.classes["transport"]) for rank in spread} == {256 * MIB}  # ep 8 stays in a node
    across = memory(small, transport="deepep", ep=16)
    assert {float(rank.classes["transport"]) for rank in across} == {512 * MIB}
    assert {float(rank.classes["transport"]) for rank in memory(small, transport="deepep", ep=1)} == {0}
    assert {float(rank.classes["transport"]) for rank in memory(small, transport="nccl-alltoall")} == {0}


def test_recomputation_trades_kept_tensors_for_workspace(small):
    none, full = memory(small)[1].classes, memory(small, recompute=("full",))[1].classes
    plan = small.plan(small.strategy.replace(recompute=("full",)))
    whole, left = kept_by_a_layer(small.plan()), kept_by_a_layer(plan)
    assert left == 2 * 1024 * 2048  # the layer input, split over tp
    assert full["workspace"] - none["workspace"] == pytest.approx(whole - left)
    assert full["activations"] < 0.2 * none["activations"]
    assert {name for name in none if none[name] != full[name]} == {"activations", "workspace", "slack"}


def test_workspace_is_the_rows_around_the_combine(small):
    # each of 2048 / 2 tokens has 4 routes: the output of the second expert GEMM, and its copy in wire order
    rows = 1024 * 4 * 2 * 2048
    assert {float(rank.classes["workspace"]) for rank in memory(small)} == {2 * rows}


def test_slack_is_a_share_of_what_comes_and_goes(small):
    for rank in memory(small):
        transient = sum(rank.classes[name] for name in ("activations", "logits", "workspace"))
        assert rank.classes["slack"] == pytest.approx(0.05 * transient, rel=1e-14)


def test_overlapped_exchange_keeps_one_more_chunk(small):
    shape = {"pp": 4, "vpp": 2, "schedule": "interleaved-1f1b"}
    plan = small.plan(small.strategy.replace(**shape))
    apart, merged = (memory(small, **shape, overlap_ep=flag) for flag in (False, True))
    for one, other in zip(apart[:3], merged[:3], strict=True):
        assert other.classes["activations"] - one.classes["activations"] == pytest.approx(kept_by_a_layer(plan))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved-1f1b"])
def test_a_batch_of_strategies_is_each_of_them(small, schedule):
    vpp = 2 if schedule.startswith("inter") else 1
    plan = small.plan(
        small.strategy.replace(schedule=schedule, vpp=vpp, micro_batch=2)
    )  # as many micro-batches as below
    degrees = {"tp": (1, 2, 4), "micro_batch": (1, 2, 4), "ep": (1, 16, 4), "etp": (2, 1, 4)}
    stacked = plan.strategy.replace(**{name: np.array(values, float) for name, values in degrees.items()})
    together = ranks(replace(plan, strategy=stacked, shape=(3,)))
    for index in range(3):
        one = plan.strategy.replace(**{name: values[index] for name, values in degrees.items()})
        for many, single in zip(together, ranks(small.plan(one)), strict=True):
            for name, value in single.classes.items():
                assert np.broadcast_to(many.classes[name], 3)[index] == pytest.approx(float(value), rel=1e-13)
