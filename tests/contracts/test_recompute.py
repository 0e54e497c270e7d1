"""What every registered recompute policy keeps to."""

from itertools import combinations

import pytest

from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.workload.batch import MicroBatch
from moesim.workload.experts import LayoutPasses
from moesim.workload.layers import layer_block, recomputed, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Layer, Moe
from moesim.workload.recompute import policies

NAMES = policies.names()
PARTIAL = [name for name in NAMES if not policies.get(name).whole_layer]
SETS = [chosen for count in range(len(PARTIAL) + 1) for chosen in combinations(PARTIAL, count)]
each_policy = pytest.mark.parametrize("name", NAMES)

LAYER = Layer(Attention(32, 4, 128, True), Moe(64, 4, 768, True))
WHOLE = layer_block(LAYER, 2048, MicroBatch(1, 4096, Mesh(64, 2, 1, 1, 2, 8)), LayoutPasses(5.0, 8.0, 8.0, 5.0, 1))


def block(*names):
    return recomputed(WHOLE, tuple(policies.get(name) for name in names))


def flop(ops):
    return sum(op.work.flop for op in ops)


def moved(ops):
    return sum(op.work.hbm_bytes for op in ops)


@each_policy
def test_it_says_what_it_is(name):
    entry = next(entry for entry in policies.entries() if entry.name == name)
    assert entry.summary
    assert entry.source


@each_policy
def test_it_drops_something_and_repeats_something(name):
    assert saved_bytes(block(name)) < saved_bytes(WHOLE)
    assert moved(block(name).recompute) > 0


@each_policy
def test_forward_and_backward_stay_as_they_are(name):
    assert block(name).forward == WHOLE.forward
    assert block(name).backward == WHOLE.backward


@each_policy
def test_what_is_repeated_is_a_part_of_the_forward_in_its_order(name):
    forward = [op.name for op in WHOLE.forward]
    repeated = [op.name.removesuffix(" again") for op in block(name).recompute]
    assert repeated == [name for name in forward if name in repeated]
    kept = {saved.name for saved in block(name).saved}
    assert kept <= {saved.name for saved in WHOLE.saved}


def test_one_more_policy_never_keeps_more_and_never_computes_less():
    for chosen in SETS:
        for name in PARTIAL:
            less, more = block(*chosen), block(*chosen, name)
            assert saved_bytes(more) <= saved_bytes(less)
            assert flop(more.recompute) >= flop(less.recompute)
            assert moved(more.recompute) >= moved(less.recompute)
            assert len(more.recompute) >= len(less.recompute)


def test_a_policy_named_twice_counts_once():
    for name in PARTIAL:
        assert block(name, name) == block(name)


def test_full_keeps_the_least_and_repeats_the_most():
    for chosen in SETS:
        assert saved_bytes(block("full")) <= saved_bytes(block(*chosen))
        assert flop(block("full").recompute) >= flop(block(*chosen).recompute)


@each_policy
def test_it_costs_time_and_saves_memory_in_an_estimate(small: Problem, name):
    base, more = (estimate(small, small.strategy.replace(recompute=names)) for names in ((), (name,)))
    assert more.step_time_s > base.step_time_s
    assert more.memory.peak_bytes < base.memory.peak_bytes
    assert more.model_flop_per_token == base.model_flop_per_token
    assert more.mfu < base.mfu
