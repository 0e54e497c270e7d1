"""What every registered recompute policy keeps to."""

from itertools import combinations, pairwise

import pytest

from moesim.cost.blocks import price_blocks
from moesim.cost.memory import rank_memory
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.workload.layers import layer_block, recomputed, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, LatentAttention, Layer, Moe
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.setting import LayoutPasses, Setting
from moesim.workload.stages import Stage

NAMES = policies.names()
PARTIAL = [name for name in NAMES if not policies.get(name).whole_layer]
SETS = [chosen for count in range(4) for chosen in combinations(PARTIAL, count)] + [tuple(PARTIAL)]
each_policy = pytest.mark.parametrize("name", NAMES)

LAYERS = (
    Layer(Attention(32, 4, 128, True), Moe(64, 4, 768, shared_size=1536)),
    Layer(LatentAttention(32, 512, 128, 64, 128, q_rank=1024), Moe(64, 4, 768)),
    Layer(Attention(32, 4, 128), Dense(8192), norms=4),
)
SETTING = Setting(1, 4096, Mesh(64, 2, 1, 1, 2, 8), recipes.get("bf16"), passes=LayoutPasses(5.0, 8.0, 8.0, 5.0, 1))
WHOLE = [layer_block(layer, 2048, SETTING) for layer in LAYERS]


def blocks(*names):
    """The layers under the policies."""
    return [recomputed(whole, tuple(policies.get(name) for name in names)) for whole in WHOLE]


def kept(chosen):
    return [saved_bytes(block) for block in chosen]


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
def test_it_drops_something_and_repeats_something_in_a_layer_that_has_it(name):
    saves = [less < more for less, more in zip(kept(blocks(name)), kept(WHOLE), strict=True)]
    repeats = [moved(block.recompute) > 0 for block in blocks(name)]
    assert any(saves)
    assert saves == repeats


@each_policy
def test_forward_and_backward_stay_as_they_are(name):
    for block, whole in zip(blocks(name), WHOLE, strict=True):
        assert block.forward == whole.forward
        assert block.backward == whole.backward


@each_policy
def test_what_is_repeated_is_a_part_of_the_forward_in_its_order(name):
    for block, whole in zip(blocks(name), WHOLE, strict=True):
        forward = [op.name for op in whole.forward]
        repeated = [op.name.removesuffix(" again") for op in block.recompute]
        assert repeated == [name for name in forward if name in repeated]
        assert flop(block.recompute) <= flop(whole.forward)
        assert {saved.name for saved in block.saved} <= {saved.name for saved in whole.saved}


@each_policy
def test_a_policy_names_operations_and_tensors_that_exist(name):
    policy = policies.get(name)
    assert set(policy.again) <= {op.name for whole in WHOLE for op in whole.forward}
    assert set(policy.dropped) <= {saved.name for whole in WHOLE for saved in whole.saved}
    assert all(0 < share <= 1 for share in (*policy.again.values(), *policy.dropped.values()))


def test_one_more_policy_never_keeps_more_and_never_computes_less():
    for chosen in SETS:
        before = blocks(*chosen)
        for name in PARTIAL:
            for less, more in zip(before, blocks(*chosen, name), strict=True):
                assert saved_bytes(more) <= saved_bytes(less)
                assert flop(more.recompute) >= flop(less.recompute)
                assert moved(more.recompute) >= moved(less.recompute)
                assert len(more.recompute) >= len(less.recompute)


def test_a_policy_named_twice_counts_once():
    for name in PARTIAL:
        assert blocks(name, name) == blocks(name)


def test_full_keeps_the_least_and_repeats_the_most():
    full = blocks("full")
    for chosen in SETS:
        for whole_layer, block in zip(full, blocks(*chosen), strict=True):
            assert saved_bytes(whole_layer) <= saved_bytes(block)
            assert flop(whole_layer.recompute) >= flop(block.recompute)


FITTING = {"mla_up_proj": "latent", "shared_experts": "shared", "mlp": "dense", "op-selective": "dense"}
"""Models of the tests that have what a policy repeats; the others repeat something of any."""


@each_policy
def test_it_costs_time_and_saves_memory_in_an_estimate(variants: dict[str, Problem], name):
    problem = variants[FITTING.get(name, "small")]
    base, more = (estimate(problem, problem.strategy.replace(recompute=names)) for names in ((), (name,)))
    assert more.step_time_s > base.step_time_s
    assert more.memory.peak_bytes < base.memory.peak_bytes
    assert more.model_flop_per_token == base.model_flop_per_token
    assert more.mfu < base.mfu


def test_the_first_layers_of_each_stage(small: Problem):
    """``full:N`` lies between nothing and ``full``, layer by layer."""
    problem = small.with_changes({"pp": 2})  # four layers a stage
    answers = [
        estimate(problem, problem.strategy.replace(recompute=names))
        for names in ((), ("full:1",), ("full:2",), ("full:3",), ("full:4",), ("full:9",), ("full",))
    ]
    for kept_more, kept_less in pairwise(answers[:5]):
        assert kept_less.step_time_s > kept_more.step_time_s
        for stages in zip(kept_more.memory.stages, kept_less.memory.stages, strict=True):
            more, less = (stage["activations_bytes"] for stage in stages)
            assert less < more
    for whole in answers[5:]:
        assert whole.step_time_s == answers[4].step_time_s
        assert whole.memory == answers[4].memory


def test_segments_keep_fewer_inputs_and_bring_more_layers_back(small: Problem):
    """A stage of eight layers in segments of three keeps three inputs; the largest segment comes back as a whole."""
    problem = small.with_changes({"pp": 1})
    plans = {name: problem.plan(problem.strategy.replace(recompute=(name,))) for name in ("full", "sqrt")}
    assert plans["sqrt"].segment(plans["sqrt"].stages[0]) == 3
    assert plans["full"].segment(plans["full"].stages[0]) == 1
    full, sqrt = (rank_memory(plan, price_blocks(plan))[0].phases["backward"] for plan in plans.values())
    layer_input = 2 * 2048 * 2048 / 2  # BF16, split over tp
    assert full["activations"] - sqrt["activations"] == pytest.approx(5 * layer_input)
    again = full["workspace"] - 2 * max(saved.num_bytes for saved in _layer_block(plans["full"]).whole.saved)
    assert sqrt["workspace"] - full["workspace"] == pytest.approx(2 * (again + layer_input))
    times = [estimate(problem, plan.strategy).step_time_s for plan in plans.values()]
    assert times[0] == times[1]


def _layer_block(plan):
    return next(block for name, block in price_blocks(plan).items() if not isinstance(name, str))


@pytest.mark.parametrize(("layers", "segment"), [(1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4)])
def test_a_segment_has_the_root_of_the_layers(small: Problem, layers, segment):
    plan = small.plan(small.strategy.replace(recompute=("sqrt",)))
    assert plan.segment(Stage(0, layers)) == segment


@pytest.mark.parametrize("names", [("full", "sqrt"), ("sqrt", "moe"), ("sqrt:2", "core_attn")])
def test_whole_layers_are_recomputed_alone(small: Problem, names):
    (broken,) = small.check(small.strategy.replace(recompute=names))
    assert broken.violation.rule == "recompute-full-alone"
