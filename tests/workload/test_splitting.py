"""A backward in two parts computes what the whole one does."""

from dataclasses import replace

import pytest

from moesim.workload.ops import Gemm, Op, Traffic
from moesim.workload.splitting import split_backward, waiting_bytes

BESIDE = {"overlap_tp": True}
SHARED = {"overlap_shared_expert": True}


def op(name, needs=(), held=None, **options):
    return Op(name, "gemm", Traffic(1.0), needs=needs, held_bytes=held, **options)


def backwards(problem, **changes):
    from moesim.cost.blocks import price_blocks

    plan = problem.plan(problem.strategy.replace(**changes))
    return {name: priced.block.backward for name, priced in price_blocks(plan).items()}


@pytest.mark.parametrize("name", ["small", "latent", "shared", "dense"])
@pytest.mark.parametrize("sharding", ["zero1", "fsdp"])
def test_no_operation_is_lost_and_every_need_is_in_its_own_part(variants, name, sharding):
    changes = {"pp": 2, "schedule": "1f1b", "dp_sharding": sharding, "overlap_param_gather": False}
    changes |= SHARED if name == "shared" else {"overlap_tp": True}
    for ops in backwards(variants[name], **changes).values():
        inputs, weights = split_backward(ops)
        assert sorted(one.name for one in inputs + weights) == sorted(one.name for one in ops)
        assert [one.work for one in inputs] == [one.work for one in ops if one.held_bytes is None]
        for part in (inputs, weights):
            seen: set[str] = set()
            for one in part:
                assert set(one.needs) <= seen, one.name
                seen.add(one.name)
        assert not any("wgrad" in one.name and isinstance(one.work, Gemm) for one in inputs)
        assert all("dgrad" not in one.name for one in weights)


def test_a_weight_gradient_for_each_input_gradient(variants):
    for problem in variants.values():
        for ops in backwards(problem, pp=2, schedule="1f1b").values():
            names = [one.name for one in ops]
            products = [name for name in names if name.endswith("-dgrad")]
            assert all(name.replace("-dgrad", "-wgrad") in names for name in products)
            _, weights = split_backward(ops)
            assert sum(isinstance(one.work, Gemm) for one in weights) == len(products)


def test_what_waited_for_a_weight_gradient_waits_for_what_that_one_waited_for():
    ops = (
        op("grad"),
        op("dgrad"),
        op("again", held=0.0),
        op("wgrad", needs=("again", "dgrad"), held=8.0),
        op("join", needs=("dgrad", "wgrad")),
        op("other-dgrad"),
        op("other-wgrad", held=4.0),
        op("end", needs=("other-wgrad",)),
    )
    inputs, weights = split_backward(ops)
    assert [(one.name, one.needs) for one in inputs] == [
        ("grad", ()),
        ("dgrad", ()),
        ("join", ("dgrad",)),
        ("other-dgrad", ()),
        ("end", ("other-dgrad",)),
    ]
    assert [(one.name, one.needs) for one in weights] == [
        ("again", ()),
        ("wgrad", ("again",)),
        ("other-wgrad", ()),
    ]
    assert waiting_bytes(ops) == 12.0


def test_what_ran_beside_something_that_is_gone_waits_for_what_is_before_it():
    ops = (op("first"), op("again", held=0.0), replace(op("dgrad"), beside=True), replace(op("next"), beside=True))
    inputs, _ = split_backward(ops)
    assert [one.beside for one in inputs] == [False, False, True]


def test_the_operands_of_a_product_wait_for_its_weight_gradient(small):
    changes = {"pp": 2, "schedule": "1f1b", "tp": 1, "ep": 1}
    layer = next(ops for name, ops in backwards(small, **changes).items() if not isinstance(name, str))
    held = {one.name: one.held_bytes for one in layer if one.held_bytes is not None}
    tokens, hidden, rows = 2048, 2048, 2048 * 4
    assert held["qkv-wgrad"] == 2 * tokens * (hidden + (16 + 8) * 128)
    assert held["expert-up-wgrad"] == pytest.approx(2 * rows * (hidden + 2 * 768))
    assert held["expert-down-wgrad"] == pytest.approx(2 * rows * (hidden + 768))


def test_of_a_gathered_input_its_own_shard_waits(small):
    held = {}
    for tp in (1, 2):
        layers = backwards(small, pp=2, schedule="1f1b", tp=tp, ep=1)
        layer = next(ops for name, ops in layers.items() if not isinstance(name, str))
        held[tp] = next(one.held_bytes for one in layer if one.name == "qkv-wgrad")
    assert held[2] == held[1] / 2  # half of the input, half of the columns of its gradient
