"""CUDA graphs: what is replayed costs the host a fraction of a launch, and keeps its inputs at their place."""

import pytest

from moesim.cost.blocks import price_blocks
from moesim.estimator import estimate
from moesim.workload.ops import SCOPES

FREE_OF_SYNCS = {"transport": "hybridep", "pp": 4, "schedule": "1f1b"}
SLOW_HOST = {"software.host.framework_per_kernel": "60 us"}


@pytest.fixture(scope="module")
def slow(small):
    """The small model behind a host that cannot keep up."""
    return small.with_changes(SLOW_HOST)


def answer(problem, scope, **changes):
    return estimate(problem, problem.strategy.replace(**FREE_OF_SYNCS | {"cuda_graph": scope} | changes))


def layer(problem, scope):
    plan = problem.plan(problem.strategy.replace(**FREE_OF_SYNCS, cuda_graph=scope))
    blocks = price_blocks(plan)
    return next(block for name, block in blocks.items() if not isinstance(name, str)), blocks, plan


@pytest.mark.parametrize("scope", ["attn", "moe-router", "moe", "attn+moe", "full"])
def test_each_operation_of_a_scope_is_launched_from_the_graph_and_no_other(small, scope):
    (apart, _, _), (captured, _, plan) = layer(small, "none"), layer(small, scope)
    host = plan.machine.host
    chosen = SCOPES if scope == "full" else scope.split("+")
    assert {priced.op.scope for priced in (*apart.forward, *apart.backward)} == {"attn", "moe-router", "moe"}
    for one, other in zip((*apart.forward, *apart.backward), (*captured.forward, *captured.backward), strict=True):
        captured_op = scope == "full" or one.op.scope in chosen
        share, calls = (host.graph / host.launch, one.op.calls * host.graph) if captured_op else (1.0, 0.0)
        assert other.launch == pytest.approx(one.launch * share + calls)  # outside, further calls take no time here
        assert other.seconds == one.seconds


def test_only_a_full_graph_holds_the_ends_of_the_model(small):
    _, apart, _ = layer(small, "none")
    for scope, captured in (("attn+moe-router+moe", False), ("full", True)):
        _, blocks, plan = layer(small, scope)
        for end in ("embedding", "head"):
            launch = sum(float(priced.launch) for priced in blocks[end].forward)
            before = sum(float(priced.launch) for priced in apart[end].forward)
            assert launch == pytest.approx(
                before * (plan.machine.host.graph / plan.machine.host.launch if captured else 1)
            )


def test_more_captured_is_never_slower_and_leaves_less_to_the_host(slow):
    found = [answer(slow, scope) for scope in ("none", "attn", "attn+moe-router", "attn+moe-router+moe", "full")]
    times, host = [one.step_time_s for one in found], [one.exposed_s["host"] for one in found]
    assert times == sorted(times, reverse=True)
    assert host == sorted(host, reverse=True)
    assert times[-1] < 0.6 * times[0]
    assert all(one.model_flop_per_token == found[0].model_flop_per_token for one in found)


def test_each_captured_part_keeps_its_input_for_every_micro_batch_in_flight(small):
    base, one, two = (answer(small, scope) for scope in ("none", "attn", "attn+moe-router"))
    row = 2 * 2048 * 2048 / 2  # BF16 over tp
    for rank in range(4):
        kept = [each.memory.stages[rank]["activations_bytes"] for each in (base, one, two)]
        assert kept[1] - kept[0] == pytest.approx((4 - rank) * 2 * row)  # two layers a stage
        assert kept[2] - kept[1] == pytest.approx((4 - rank) * 2 * row)
    whole = answer(small, "full")
    assert whole.memory == base.memory


def test_shared_experts_are_captured_with_the_router_unless_they_run_beside_the_exchange(variants):
    problem = variants["shared"]
    for overlapped, scope in ((False, "moe-router"), (True, "moe")):
        strategy = problem.strategy.replace(**FREE_OF_SYNCS, overlap_shared_expert=overlapped)
        blocks = price_blocks(problem.plan(strategy))
        block = next(block for name, block in blocks.items() if not isinstance(name, str))
        shared = {priced.op.scope for priced in block.forward if priced.op.name.startswith("shared")}
        assert shared == {scope}


def test_a_dense_layer_is_captured_as_mlp(variants):
    problem = variants["dense"]
    base, captured = (
        estimate(problem, problem.strategy.replace(pp=4, schedule="1f1b", cuda_graph=scope))
        for scope in ("none", "mlp")
    )
    assert captured.step_time_s <= base.step_time_s
    assert captured.memory.peak_bytes > base.memory.peak_bytes


def test_off_is_neutral(small):
    assert answer(small, "none").step_time_s == estimate(small, small.strategy.replace(**FREE_OF_SYNCS)).step_time_s
