"""Memory of each pipeline rank, class by class."""

from dataclasses import replace

import numpy as np
import pytest

import moesim
from moesim.cost.blocks import price_blocks
from moesim.cost.memory import CLASSES, STATE, TENSORS, TRANSIENT, rank_memory
from moesim.cost.plan import Plan
from moesim.workload.layers import saved_bytes

MIB = 2**20


def ranks(plan: Plan):
    return rank_memory(plan, price_blocks(plan))


def memory(problem, **changes):
    return ranks(problem.plan(problem.strategy.replace(**changes)))


def kept_by_a_layer(plan):
    repeated = plan.recomputed_layers(plan.stages[0]) > 0
    return saved_bytes(price_blocks(plan)[plan.model.layers[0], repeated, False].block)


def test_activations_are_the_chunks_in_flight(small):
    plan = small.plan(small.strategy.replace(pp=4, schedule="1f1b"))
    layer = kept_by_a_layer(plan)
    found = [float(rank.classes["activations"]) for rank in ranks(plan)]
    head_input = 2 * (2 * 2048 / 2 * 2048)  # what the final norm takes and gives, split over tp
    assert found == pytest.approx([4 * 2 * layer, 3 * 2 * layer, 2 * 2 * layer, 2 * layer + head_input], rel=1e-12)


def test_gpipe_keeps_every_micro_batch(free):
    plan = free.plan(free.strategy.replace(pp=4, schedule="gpipe"))
    assert plan.num_micro_batches == 16
    assert ranks(plan)[1].classes["activations"] == pytest.approx(16 * 2 * kept_by_a_layer(plan), rel=1e-12)


def test_interleaving_keeps_more_chunks_of_fewer_layers(small):
    plan = small.plan(small.strategy.replace(pp=4, vpp=2, schedule="interleaved-1f1b"))
    chunks = [4 + 2 * (4 - 1 - rank) + 1 for rank in range(4)]  # (v - 1) p + 2 (p - 1 - r) + 1
    found = [float(rank.classes["activations"]) for rank in ranks(plan)][:3]
    assert found == pytest.approx([count * kept_by_a_layer(plan) for count in chunks[:3]], rel=1e-12)


@pytest.mark.parametrize(
    ("runtime", "per_logit"),
    [
        ({}, 2),  # the fused loss writes the gradient over the BF16 logits
        ({"fused_cross_entropy": False}, 2 + 4),  # beside an FP32 softmax
        ({"fused_cross_entropy": False, "logits_dtype": "fp32"}, 4 + 4),
        ({"fused_linear_cross_entropy": True}, 0),  # a tile at a time
    ],
)
def test_logits_are_on_the_last_rank_only(small, runtime, per_logit):
    problem = small.with_changes({f"software.runtime.{name}": value for name, value in runtime.items()})
    *others, last = memory(problem, pp=4, schedule="1f1b")
    assert not any(phase["logits"] for rank in others for phase in rank.phases.values())
    assert last.phases["loss"]["logits"] == per_logit * 2048 * 32_000 / 2


@pytest.mark.parametrize(("tp", "per_logit"), [(1, 12), (2, 18), (4, 18)])
def test_a_loss_over_a_split_vocabulary_holds_more(tp, per_logit):
    problem = moesim.from_names("llama3-8b", "hgx-h100:1", "torchtitan-eager")
    (only,) = memory(problem, tp=tp, micro_batch=1)
    assert only.phases["loss"]["logits"] == per_logit * problem.sequence_length * 128_256 / tp


def test_no_pipeline_holds_one_micro_batch(small):
    plan = small.plan(small.strategy.replace(pp=1, schedule="none", micro_batch=2))
    (rank,) = ranks(plan)
    head_input = 2 * 2 * (2 * 2048 / 2 * 2048)
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


def test_workspace_is_two_gradients_of_the_largest_tensor(small):
    # the rows that arrive at the experts: each of 2048 / 2 tokens has 4 routes
    rows = 1024 * 4 * 2 * 2048
    assert {float(rank.phases["backward"]["workspace"]) for rank in memory(small)} == {2 * rows}
    assert not any(rank.phases["optimizer"]["workspace"] for rank in memory(small))


def test_slack_is_a_share_of_what_comes_and_goes(small):
    for rank in memory(small):
        for phase in rank.phases.values():
            transient = sum(phase[name] for name in TRANSIENT)
            assert phase["slack"] == pytest.approx(0.05 * transient, rel=1e-14)


def test_slack_shrinks_before_anything_fails(small):
    """An allocator near the capacity gives cached blocks back, but never all of them."""
    wide = small.strategy.replace(pp=1, schedule="none", micro_batch=4)
    (roomy,) = ranks(small.plan(wide))
    tight = roomy.peak - 0.5 * roomy.classes["slack"]
    less = roomy.peak - roomy.classes["slack"]
    for capacity, slack in ((tight, 0.5 * roomy.classes["slack"]), (less, 0.4 * roomy.classes["slack"])):
        problem = small.with_changes({"gpu.memory_capacity": f"{capacity:.0f} B"})
        (rank,) = ranks(problem.plan(wide))
        assert rank.classes["slack"] == pytest.approx(slack, rel=1e-6)
        assert (rank.peak <= capacity) == (capacity == tight)


def test_the_peak_is_the_largest_phase(small):
    for changes in (
        {},
        {"micro_batch": 8},
        {"grad_dtype": "bf16", "dp_sharding": "ddp", "overlap_param_gather": False},
    ):
        for rank in memory(small, **changes):
            totals = {name: sum(phase.values()) for name, phase in rank.phases.items()}
            assert rank.peak == max(totals.values()) == totals[rank.peak_phase]
            assert rank.classes == rank.phases[rank.peak_phase]


def test_state_is_there_in_every_phase_and_activations_are_gone_in_the_update(small):
    *others, last = memory(small)
    assert [set(rank.phases) for rank in others] == [{"forward", "backward", "optimizer"}] * 3
    assert set(last.phases) == {"loss", "backward", "optimizer"}
    for rank in (*others, last):
        phases = rank.phases.values()
        for name in ("weights", "gradients", "optimizer", "transport", "context", "nccl"):
            assert len({float(phase[name]) for phase in phases}) == 1
        update = rank.phases["optimizer"]
        assert not any(update[name] for name in ("activations", "logits", "workspace", "unsharded"))


def test_the_update_works_on_fp32_copies_of_the_gradients_that_a_rank_owns(small):
    plan = small.plan()
    for sharding, share in (("zero1", None), ("ddp", 1.0)):
        changes = {"dp_sharding": sharding, "overlap_param_gather": False, "grad_dtype": "bf16"}
        for rank, params in zip(memory(small, **changes), plan.params, strict=True):
            owned = share * params.total if share else params.dense / plan.mesh.dp + params.routed / plan.mesh.edp
            assert rank.phases["optimizer"]["update"] == pytest.approx(4 * owned, rel=1e-14)
    assert not any(rank.phases["optimizer"]["update"] for rank in memory(small, grad_dtype="fp32"))


def test_a_saving_below_the_floor_of_another_phase_shows_none(small):
    """Where the update needs more than the backward, recomputing activations does not lower the peak."""
    floor = {"dp_sharding": "ddp", "overlap_param_gather": False, "grad_dtype": "bf16", "pp": 1, "schedule": "none"}
    peaks = [memory(small, **floor, recompute=names)[0] for names in ((), ("moe_act",), ("full",))]
    assert [rank.peak_phase for rank in peaks] == ["optimizer"] * 3
    assert len({float(rank.peak) for rank in peaks}) == 1


FSDP = {"dp_sharding": "fsdp", "overlap_param_gather": False, "pp": 1, "schedule": "none"}


def unit_of(plan):
    """Parameters of the largest block on one rank: a layer, the embedding, the head."""
    return max(float(block.params.total) for block in price_blocks(plan).values())


def test_sharded_training_holds_two_units_whole_and_the_gradient_of_one(small):
    plan = small.plan(small.strategy.replace(**FSDP))
    (rank,) = ranks(plan)
    unit = unit_of(plan)
    for name in ("loss", "backward"):
        assert rank.phases[name]["unsharded"] == pytest.approx(
            (2 * 2 + 2 + 4) * unit
        )  # its gradient in BF16, and in FP32
    assert rank.phases["optimizer"]["unsharded"] == 0
    (kept,) = memory(small, **FSDP, reshard_after_forward=False)
    assert kept.phases["backward"]["unsharded"] == pytest.approx(2 * plan.params[0].total + (2 + 4) * unit)
    (zero2,) = memory(small, **FSDP | {"dp_sharding": "zero2"})
    assert zero2.phases["backward"]["unsharded"] == pytest.approx((2 + 4) * unit)


def test_a_limit_on_live_parameters_bounds_what_is_gathered(small):
    live = small.with_changes({"software": "deepspeed", "dp_sharding": "fsdp", "pp": 1, "tp": 1})
    limit = live.software.constants["max_live_parameters"].value
    plan = live.plan()
    assert unit_of(plan) < limit
    fewer = replace(plan, machine=replace(plan.machine, runtime=replace(plan.machine.runtime, max_live_params=1e6)))
    assert ranks(fewer)[0].phases["backward"]["unsharded"] < ranks(plan)[0].phases["backward"]["unsharded"]


def test_shardings_are_ordered_in_memory(small):
    """Whole state, split optimizer, split gradients, split weights; split inside a node only lies between the ends."""
    base = {"overlap_param_gather": False, "pp": 1, "schedule": "none", "tp": 1}
    found = {name: memory(small, **base, dp_sharding=name)[0] for name in ("ddp", "zero1", "zero2", "fsdp", "hsdp")}
    state = {name: sum(rank.classes[part] for part in STATE) for name, rank in found.items()}
    assert state["ddp"] > state["zero1"] > state["zero2"] > state["fsdp"]
    assert state["ddp"] > state["hsdp"] > state["fsdp"]
    for name, split in (("ddp", ()), ("zero1", ("optimizer",)), ("zero2", ("optimizer", "gradients"))):
        for part in STATE:
            assert (found[name].classes[part] < found["ddp"].classes[part]) == (part in split)
    assert found["fsdp"].peak < found["zero1"].peak < found["ddp"].peak


def test_gradients_are_split_only_where_they_are_reduced_at_once(small):
    """Software that adds the gradients of its micro-batches locally keeps them whole."""
    local = small.with_changes({"software.runtime.grad_accumulation": "local"})
    changes = {"dp_sharding": "zero2", "overlap_param_gather": False}
    (each, *_), (added, *_) = memory(small, **changes), memory(local, **changes)
    assert small.plan().num_micro_batches > 1
    assert added.classes["gradients"] == 4 * small.plan().params[0].total
    assert each.classes["gradients"] < added.classes["gradients"]


@pytest.mark.parametrize(
    ("changes", "weights", "optimizer"),
    [
        ({}, 2, 12),
        ({"param_dtype": "fp32"}, 4, 8),  # FP32 weights are their own main weights
        ({"optimizer_state_dtype": "bf16"}, 2, 8),
        ({"main_param_dtype": "bf16"}, 2, 8),
        ({"precision": "fp8-current", "fp8_params": False}, 4, 12),  # both orientations of the FP8 copy beside BF16
        ({"precision": "fp8-current", "fp8_params": True}, 2, 12),
        ({"precision": "mxfp8", "fp8_params": True}, 2.0625, 12),
        ({"software.runtime.main_param_remainders": True}, 2, 10),
        ({"software.runtime.main_param_remainders": True, "precision": "fp8-current", "fp8_params": True}, 2, 12),
    ],
)
def test_bytes_of_the_state_by_number_format(small, changes, weights, optimizer):
    node = {"cluster": "hgx-b200:8"} if changes.get("precision") == "mxfp8" else {}
    problem = small.with_changes({"dp_sharding": "ddp", "overlap_param_gather": False} | node | changes)
    total = problem.plan().params[0].total
    (rank, *_) = ranks(problem.plan())
    assert rank.classes["weights"] == pytest.approx(weights * total)
    assert rank.classes["optimizer"] == pytest.approx(optimizer * total)


def test_low_precision_keeps_smaller_activations(small):
    high, low = (memory(small, precision=name) for name in ("bf16", "fp8-current"))
    for one, other in zip(high, low, strict=True):
        assert other.classes["activations"] < one.classes["activations"]


def test_context_parallelism_divides_activations_and_not_state(small):
    long = small.with_changes({"sequence_length": 32_768, "global_batch": 64})
    whole, split = (memory(long, cp=cp, pp=1, schedule="none")[0].classes for cp in (1, 4))
    for name in ("activations", "logits"):
        assert split[name] == pytest.approx(whole[name] / 4)
    assert split["weights"] == whole["weights"]
    assert split["optimizer"] == whole["optimizer"]  # dense state is split over dp x cp


def test_a_capacity_and_a_hot_rank_take_memory(small):
    base, hot = memory(small), memory(small, rank_imbalance=1.5)
    padded = memory(small, routing="capacity", capacity_factor=1.5)
    for one, other, same in zip(base, hot, padded, strict=True):
        assert other.classes["activations"] > one.classes["activations"]
        assert other.classes == same.classes


def test_rowwise_buffers_of_the_report(olmo):
    """One dispatch buffer a routed layer and a shared one, each T K c d x 2 B: 8 x 0.625 GiB = 5.00 GiB."""
    plan = olmo.plan()
    assert plan.model.moe.top_k == 4
    assert sum(layer.moe is not None for layer in plan.model.layers) == 7
    assert plan.setting.tokens == 16_384
    (rank,) = ranks(plan)
    assert rank.classes["transport"] == 8 * 1.25 * 16_384 * 4 * 4096 * 2 == 5.00 * 2**30
    for names in (("full",), ("moe",)):  # a repeated dispatch gives its buffer back
        (less,) = ranks(olmo.plan(olmo.strategy.replace(recompute=names)))
        assert less.classes["transport"] == 2 * 0.625 * 2**30


@pytest.fixture(scope="module")
def olmo():
    problem = moesim.from_names("olmo-8l-32e", "hgx-b300:1", "olmo-core")
    changes = {"cluster.gpus": 4, "sequence_length": 8192, "global_batch": 8, "micro_batch": 2, "ep": 4}
    return problem.with_changes(changes | {"transport": "nvshmem-rowwise", "recompute": "none"})


def test_overlapped_exchange_keeps_one_more_layer(small):
    """Layers of the forward come as those of the backward go; a chunk has one layer here."""
    shape = {"pp": 4, "vpp": 2, "schedule": "interleaved-1f1b"}
    plan = small.plan(small.strategy.replace(**shape))
    apart, merged = (memory(small, **shape, overlap_ep=flag) for flag in (False, True))
    for one, other in zip(apart[:3], merged[:3], strict=True):
        assert other.classes["activations"] == one.classes["activations"]
        assert other.classes["workspace"] - one.classes["workspace"] == pytest.approx(kept_by_a_layer(plan))


def test_without_a_pipeline_an_overlapped_exchange_does_not_keep_two_micro_batches(small):
    shape = {"pp": 1, "vpp": 1, "schedule": "none"}
    plan = small.plan(small.strategy.replace(**shape))
    (apart,), (merged,) = (memory(small, **shape, overlap_ep=flag) for flag in (False, True))
    phases = [rank.phases["backward"] for rank in (apart, merged)]
    assert phases[1]["activations"] == phases[0]["activations"]
    assert phases[1]["workspace"] - phases[0]["workspace"] == pytest.approx(kept_by_a_layer(plan))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved-1f1b", "zb-v", "dualpipe"])
def test_a_batch_of_strategies_is_each_of_them(free, schedule):
    vpp = 2 if schedule in ("interleaved-1f1b", "zb-v") else 1
    plan = free.plan(free.strategy.replace(schedule=schedule, vpp=vpp, micro_batch=2))  # as many micro-batches as below
    degrees = {"tp": (1, 2, 4), "micro_batch": (1, 2, 4), "ep": (1, 16, 4), "etp": (2, 1, 4)}
    stacked = plan.strategy.replace(**{name: np.array(values, float) for name, values in degrees.items()})
    together = ranks(replace(plan, strategy=stacked, shape=(3,)))
    for index in range(3):
        one = plan.strategy.replace(**{name: values[index] for name, values in degrees.items()})
        for many, single in zip(together, ranks(free.plan(one)), strict=True):
            for name, value in single.classes.items():
                assert np.broadcast_to(many.classes[name], 3)[index] == pytest.approx(float(value), rel=1e-13)
