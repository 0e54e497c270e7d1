"""Every method at its off setting changes nothing; those that only reorder keep FLOP and bytes."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from moesim.cost.blocks import price_blocks
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.transports import transports
from moesim.estimator import estimate
from moesim.spec.methods import METHODS
from moesim.workload.fusions import fusions
from moesim.workload.ops import ExpertLeg, Gemm
from moesim.workload.strategy import OFF, Strategy

BASE = {"tp": 1, "sequence_parallel": False, "pp": 4, "schedule": "1f1b", "micro_batch": 2, "ep": 8}
SAME = 1e-12


@pytest.fixture(scope="module")
def strategies(free):
    """One strategy for each transport, and two where other settings could hide a change."""
    base = free.strategy.replace(**BASE)
    found = [base.replace(transport=name) for name in transports.names()]
    found.append(base.replace(precision="fp8-current", recompute=("moe_act", "layernorm")))
    found.append(base.replace(routing="natural", rank_imbalance=1.3, capacity_factor=1.2, recompute=("full",)))
    return found


def numbers(value, path=""):
    """Every number of an answer by its path."""
    if isinstance(value, dict):
        return {key: one for name, part in value.items() for key, one in numbers(part, f"{path}.{name}").items()}
    if isinstance(value, list | tuple):
        return {key: one for i, part in enumerate(value) for key, one in numbers(part, f"{path}[{i}]").items()}
    return {path: float(value)} if isinstance(value, int | float) else {}


def same(free, one, other):
    first, second = (numbers(estimate(free, strategy).to_dict()) for strategy in (one, other))
    for path in set(first) & set(second):
        assert second[path] == pytest.approx(first[path], rel=SAME, abs=0), path


NEUTRAL = {
    "zipf without an exponent": {"routing": "zipf:0"},
    "one histogram for all": {"routing": "histogram:" + ",".join(["7"] * 32)},
    "a capacity that nobody reaches": {"capacity_factor": 50.0},
    "a capacity of each expert that none reaches": {
        "routing": "zipf:0",
        "capacity_factor": 50.0,
        "capacity_per": "expert",
    },
    "no copies": {"replicated_experts": 0},
    "as many nodes as there are": {"node_limit": 8},
    "more nodes than there are": {"node_limit": 1000},
    "one wave": {"expert_waves": 1},
}


@pytest.mark.parametrize("changes", NEUTRAL.values(), ids=NEUTRAL)
def test_a_setting_that_does_nothing_changes_no_number(free, strategies, changes):
    for strategy in strategies:
        if strategy.rank_imbalance == 1 and strategy.capacity_factor is None:
            same(free, strategy, strategy.replace(**changes))


@pytest.mark.parametrize("name", METHODS)
def test_the_off_setting_of_a_method_is_its_default(free, name):
    assert getattr(Strategy(), name) == OFF[name]
    assert getattr(free.strategy, name) == OFF[name]
    assert name not in estimate(free).strategy


def test_off_means_the_operations_of_a_layer_without_methods(free, strategies):
    """No operation of a block knows of a method that is off."""
    for strategy in strategies:
        setting = free.plan(strategy).setting
        asked = setting.products.host_counts and free.machine.runtime.fusion.product_each_expert  # by the library
        plain = replace(setting.plain, products=replace(setting.plain.products, host_counts=asked))
        for field in fields(setting):
            assert getattr(setting, field.name) == getattr(plain, field.name), field.name


def work(free, strategy, **changes):
    """FLOP, exchanged rows, bytes of kernels, and kernels of all layers of a plan."""
    plan = free.plan(strategy.replace(**changes))
    halves = strategy.replace(**changes).two_batch_overlap
    blocks = price_blocks(plan.half if halves else plan)
    one = next(block for name, block in blocks.items() if not isinstance(name, str))
    ops = [priced.op for priced in (*one.forward, *one.backward)]
    times = 2 if halves else 1
    products = {op.name: op.work.hbm_bytes for op in ops if isinstance(op.work, Gemm)}
    return {
        "flop": times * sum(float(op.work.flop) for op in ops),
        "rows": times * sum(float(op.work.tokens) for op in ops if isinstance(op.work, ExpertLeg)),
        "traffic": times * sum(float(op.work.hbm_bytes) for op in ops if op.category == "memory_bound"),
        "products": times * sum(map(float, products.values())),
        "kernels": times * sum(float(np.sum(op.kernels)) for op in ops),
    }


REORDER: dict[str, dict[str, Any]] = {
    "delay_wgrad": {"delay_wgrad": True},
    "expert_waves": {"expert_waves": 4},
    "two_batch_overlap": {"two_batch_overlap": True},
}


@pytest.mark.parametrize("name", REORDER)
def test_what_only_reorders_keeps_flop_and_bytes(free, strategies, name):
    for strategy in strategies[:-1]:
        before, after = work(free, strategy), work(free, strategy, **REORDER[name])
        for part in ("flop", "rows", "traffic"):
            assert after[part] == pytest.approx(before[part], rel=SAME), part
        if name == "delay_wgrad":
            assert after == pytest.approx(before, rel=SAME)
        else:  # weights are read once for each part
            assert after["products"] > before["products"]
            assert after["kernels"] > before["kernels"]


@pytest.mark.parametrize("kind", expert_gemms.names())
def test_kinds_of_products_agree_on_useful_flop(free, strategies, kind):
    for strategy in strategies[:-2]:
        before = work(free, strategy)
        after = work(free, strategy, expert_gemm=kind, capacity_factor=1.0)
        assert after["flop"] == pytest.approx(before["flop"], rel=SAME)
        assert after["rows"] == pytest.approx(before["rows"], rel=SAME)


def test_fusions_and_waits_keep_flop_and_exchanged_rows(free, strategies):
    for strategy in strategies[:-1]:
        before = work(free, strategy)
        for changes in ({"fusions": (name,)} for name in fusions.names()):
            if free.check(strategy.replace(**changes)):
                continue
            after = work(free, strategy, **changes)
            assert (after["flop"], after["rows"]) == (before["flop"], before["rows"])
            assert after["traffic"] <= before["traffic"]
            assert after["kernels"] < before["kernels"]


def test_model_flop_do_not_depend_on_methods(free, strategies):
    expected = estimate(free, strategies[0]).model_flop_per_token
    for changes in ({"expert_waves": 2}, {"expert_gemm": "loop"}, {"routing": "zipf:1"}, {"two_batch_overlap": True}):
        assert estimate(free, replace(strategies[0], **changes)).model_flop_per_token == expected
