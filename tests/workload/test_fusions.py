"""Joined kernels: fewer launches, less traffic, the same products."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.blocks import price_blocks
from moesim.estimator import estimate
from moesim.workload.fusions import fusions

BLOCK = {"transport": "nccl-alltoall", "pp": 4, "schedule": "1f1b"}


@pytest.fixture(scope="module")
def problem(free):
    """The small model where launches take the host long, and FP8 exists."""
    slow = free.with_changes({"software.host.framework_per_kernel": "40 us"})
    return replace(slow, software=slow.software.model_copy(update={"rules": ()}))


def layer(problem, **changes):
    plan = problem.plan(problem.strategy.replace(**BLOCK | changes))
    one = next(block for name, block in price_blocks(plan).items() if not isinstance(name, str))
    return plan, {priced.op.name: priced.op for priced in (*one.forward, *one.backward)}


def kernels(ops):
    return sum(float(np.sum(op.kernels)) for op in ops.values())


def moved(ops):
    return sum(float(op.work.hbm_bytes) for op in ops.values())


def test_a_permutation_is_one_kernel(problem):
    (_, apart), (_, joined) = layer(problem), layer(problem, fusions=("permute",))
    # four passes, forward and backward, of two kernels each
    assert kernels(apart) - kernels(joined) == 8
    assert moved(apart) == moved(joined)


def test_the_router_reads_its_scores_once(problem):
    (_, apart), (_, joined) = layer(problem), layer(problem, fusions=("router",))
    gates = 2048 / 2 * 32
    assert joined["router-top-k"].work.hbm_bytes == 9 * gates
    assert joined["router-top-k-backward"].work.hbm_bytes == 12 * gates
    assert kernels(apart) - kernels(joined) == (10 - 1) + (8 - 1)


def test_an_activation_writes_the_operand_of_the_next_product(problem):
    changes = {"precision": "fp8-current"}
    (plan, apart), (_, joined) = layer(problem, **changes), layer(problem, **changes, fusions=("activation-quantize",))
    rows, inner, wide = 2048 / 2 * 4, 768, 2 * 768
    cast = plan.recipe.cast_bytes
    assert joined["expert-activation"].work.hbm_bytes == pytest.approx(rows * (2 * wide + (cast - 2) * inner))
    backward = joined["expert-activation-backward"].work.hbm_bytes
    assert backward == pytest.approx(rows * (2 * (wide + inner) + (cast - 2) * wide))
    assert set(apart) - set(joined) == {"expert-down-cast", "expert-up-dgrad-cast"}
    saved = 4 * rows * (inner + wide)  # 2 T K w s for each tensor that is gone
    assert moved(apart) - moved(joined) == pytest.approx(saved)


@pytest.mark.parametrize("name", fusions.names())
def test_a_fusion_is_never_slower_and_computes_the_same(problem, name):
    base = problem.strategy.replace(**BLOCK, precision="fp8-current")
    before, after = (estimate(problem, base.replace(fusions=names)) for names in ((), (name,)))
    assert after.step_time_s < before.step_time_s
    assert after.memory == before.memory
    flops = [
        sum(float(op.work.flop) for op in layer(problem, precision="fp8-current", fusions=names)[1].values())
        for names in ((), (name,))
    ]
    assert flops[0] == flops[1]


def test_all_together_save_what_each_saves(problem):
    changes = {"precision": "fp8-current"}
    base = layer(problem, **changes)[1]
    together = layer(problem, **changes, fusions=tuple(fusions.names()))[1]
    alone = [layer(problem, **changes, fusions=(name,))[1] for name in fusions.names()]
    for count in (kernels, moved):
        assert count(base) - count(together) == pytest.approx(sum(count(base) - count(one) for one in alone))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"fusions": ("permut",)}, "known-fusions"),
        ({"fusions": ("router", "router")}, "fusions-once"),
        ({"fusions": ("activation-quantize",)}, "fusions-of-something"),
        ({"fusions": ("permute",), "transport": "nvshmem-rowwise"}, "fusions-of-something"),
    ],
)
def test_what_is_refused(problem, changes, rule):
    found = problem.check(problem.strategy.replace(**BLOCK | changes))
    assert rule in {broken.violation.rule for broken in found}


def test_a_dense_model_has_no_router(variants):
    dense = variants["dense"]
    found = dense.check(dense.strategy.replace(fusions=("router",)))
    assert {broken.violation.rule for broken in found} == {"fusions-of-something"}


def test_names_are_read_from_a_scenario(small):
    assert small.with_changes({"fusions": "router, permute"}).strategy.fusions == ("router", "permute")
    assert small.with_changes({"fusions": "none"}).strategy.fusions == ()
