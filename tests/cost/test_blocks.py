"""Priced layers: each kind once, with the launches that were counted, the formats of the ends, the messages of sharding."""

from dataclasses import replace

import pytest

import moesim
from moesim.cost.blocks import chunk_blocks, price_blocks
from moesim.cost.once import Once
from moesim.cost.price import launches
from moesim.workload.ops import Gemm, Message

FSDP = {"dp_sharding": "fsdp", "overlap_param_gather": False, "pp": 1, "schedule": "none"}


def plan_of(problem, **changes):
    return problem.plan(problem.strategy.replace(**changes))


def launched(block):
    return float(sum(op.launch for op in (*block.forward, *block.backward)))


def test_equal_layers_are_priced_once(small, variants):
    assert len(price_blocks(small.plan())) == 3  # layer, embedding, head
    assert len(price_blocks(plan_of(small, pp=2, recompute=("full:2",)))) == 4  # recomputed and kept layers
    assert set(price_blocks(variants["latent"].plan())) > {"embedding", "head"}


@pytest.mark.parametrize("kind", ["latent", "small"])
def test_prices_that_plans_share_are_those_of_each_alone(small, variants, kind):
    problem, known = variants.get(kind, small), Once()
    for changes in (
        {},
        {"tp": 1, "ep": 1},
        {"ep": 16, "transport": "deepep"},
        {"precision": "fp8-current", "recompute": ("full",)},
        {"routing": "zipf:0.5", "rank_imbalance": 1.0},
        {**FSDP, "overlap_tp": True},
    ):
        plan = plan_of(problem, **changes)
        alone, shared = price_blocks(plan), price_blocks(plan, known)
        for name, block in alone.items():
            assert (block.forward, block.backward, block.block) == (
                shared[name].forward,
                shared[name].backward,
                shared[name].block,
            )


def test_a_layer_launches_as_many_kernels_as_were_counted_for_it_or_for_each_operation(small):
    for changes in ({}, {"tp": 1, "ep": 1}, {"ep": 16, "transport": "deepep"}, {"precision": "fp8-current"}):
        plan = plan_of(small, **changes)
        layer = price_blocks(plan)[plan.model.layers[0], True, False]
        operations = sum(float(launches(priced.op, plan.mesh)) for priced in (*layer.forward, *layer.backward))
        assert launched(layer) == pytest.approx(
            plan.machine.runtime.launches_per_operation * operations * plan.machine.host.launch
        )
        counted = replace(plan.machine, runtime=replace(plan.machine.runtime, launches_per_moe_layer=90))
        layer = price_blocks(replace(plan, machine=counted))[plan.model.layers[0], True, False]
        assert launched(layer) == pytest.approx(90 * plan.machine.host.launch)


def test_what_is_recomputed_is_launched_again(small):
    layers = [
        price_blocks(plan)[plan.model.layers[0], True, False]
        for plan in (plan_of(small, recompute=names) for names in ((), ("full",)))
    ]
    forward = float(sum(op.launch for op in layers[0].forward))
    assert launched(layers[1]) == pytest.approx(launched(layers[0]) + forward)


def test_the_head_of_an_mtp_module_is_never_run_again():
    """Recomputation wraps the layer of a module; its output projection and loss come behind it."""
    problem = moesim.from_names("deepseek-v3", "hgx-h200:128").with_changes({"ep": 64, "pp": 16, "recompute": "full"})
    plan = problem.with_changes({"layout": "count-embedding-and-loss"}).plan()
    module = price_blocks(plan)["mtp"]
    again = {op.op.name.removesuffix(" again") for op in module.backward if op.op.name.endswith(" again")}
    forward = {op.op.name for op in module.forward}
    head = {"final-norm", "head-enter", "head", "cross-entropy", "cross-entropy-all-reduce"}
    assert head < forward
    assert again == forward - head


def test_a_host_that_takes_no_time_launches_in_none(small):
    free = small.with_changes({"software.host.framework_per_kernel": "0 s", "software.host.kernel_launch": "0 s"})
    layer = price_blocks(free.plan())[free.model.layers[0], True, False]
    assert launched(layer) == 0


def test_layers_at_the_ends_may_keep_16_bits(small):
    ends = small.with_changes({"software.runtime.bf16_layers": 1, "precision": "fp8-current", "pp": 1})
    plan = ends.plan()
    chunk = chunk_blocks(plan, plan.stages[0], price_blocks(plan))[1:-1]
    rates = [
        {op.op.work.rate for op in block.forward if isinstance(op.op.work, Gemm) and op.op.name == "qkv"}
        for block in chunk
    ]
    assert rates == [{"bf16"}, *[{"fp8"}] * 6, {"bf16"}]
    assert not any(ends.with_changes({"precision": "bf16"}).plan().in_bf16(layer) for layer in range(8))


def messages(plan, side):
    layer = price_blocks(plan)[plan.model.layers[0], True, False]
    ops = [op.op for op in getattr(layer, side) if op.op.category == "dp"]
    assert all(isinstance(op.work, Message) for op in ops)
    return {op.name: (op.work.collective, op.work.axis, float(op.work.size)) for op in ops}


def test_split_weights_are_gathered_for_each_pass_and_gradients_scattered(small):
    plan = plan_of(small, **FSDP)
    params = price_blocks(plan)[plan.model.layers[0], True, False].params
    gathers = {
        "dense": ("all-gather", "dense-shard", 2 * params.dense),
        "routed": ("all-gather", "routed-shard", 2 * params.routed),
    }
    scatters = {
        "gradients-dense": ("reduce-scatter", "dense-shard", 4 * params.dense),
        "gradients-routed": ("reduce-scatter", "routed-shard", 4 * params.routed),
    }
    assert messages(plan, "forward") == {f"weights-{kind}": message for kind, message in gathers.items()}
    again = {f"weights-again-{kind}": message for kind, message in gathers.items()}
    assert messages(plan, "backward") == again | scatters
    assert messages(plan_of(small, **FSDP, recompute=("full",)), "backward") == again | scatters
    assert messages(plan_of(small, **FSDP, reshard_after_forward=False), "backward") == scatters
    zero2 = plan_of(small, **FSDP | {"dp_sharding": "zero2"})
    assert (messages(zero2, "forward"), messages(zero2, "backward")) == ({}, scatters)
    for name in ("ddp", "zero1"):
        plain = plan_of(small, **FSDP | {"dp_sharding": name})
        assert messages(plain, "forward") == messages(plain, "backward") == {}


def test_weights_kept_in_low_precision_are_gathered_in_it(small):
    plan = plan_of(small, **FSDP, precision="fp8-current", fp8_params=True)
    params = price_blocks(plan)[plan.model.layers[0], True, False].params
    assert messages(plan, "forward")["weights-dense"][2] == params.dense


def test_locally_added_gradients_are_not_scattered_each_time(small):
    local = small.with_changes({"software.runtime.grad_accumulation": "local"})
    plan = plan_of(local, **FSDP)
    assert plan.num_micro_batches > 1
    assert not any(name.startswith("gradients") for name in messages(plan, "backward"))
    once = replace(plan, num_micro_batches=1)
    assert any(name.startswith("gradients") for name in messages(once, "backward"))
