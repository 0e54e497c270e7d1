"""Biases of routed experts, as a framework without a compiler adds them."""

from dataclasses import replace

import pytest

from moesim.workload.mesh import Mesh
from moesim.workload.model import Moe
from moesim.workload.precision import recipes
from moesim.workload.routed import Routed
from moesim.workload.setting import Fusion, Setting

MOE = Moe(16, 2, 512)
SETTING = Setting(1, 1024, Mesh(8, 1, 1, 1, 1, 8), recipes.get("bf16"))
BIASED = replace(MOE, bias=True)


def routed(moe, **fusion):
    made = Routed(moe, 256, replace(SETTING, fusion=Fusion(**fusion)))
    return {op.name: op for op in (*made.forward(), *made.backward())}


def test_a_bias_is_added_slice_by_slice():
    ops = routed(BIASED)
    assert set(ops) - set(routed(MOE)) == {"expert-bias", "expert-bias-backward"}
    rows = 1024 * 2
    assert ops["expert-bias"].work.hbm_bytes == 28 * rows * 256
    assert (ops["expert-bias"].calls, ops["expert-bias-backward"].calls) == (2 * 2, 5 * 2)


def test_a_compiler_joins_it():
    assert set(routed(BIASED, compiled=True)) == set(routed(MOE, compiled=True))


@pytest.mark.parametrize(("one_by_one", "calls"), [(True, 1), (False, 0)])
def test_products_on_streams_are_launched_one_by_one(one_by_one, calls):
    ops = routed(MOE, product_each_expert=one_by_one)
    assert {ops[name].calls for name in ("expert-up", "expert-down", "expert-up-wgrad")} == {calls}
