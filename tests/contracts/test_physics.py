"""What must hold whatever the constants are: orders of memory, traffic and time between the choices of a strategy."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest

import moesim
from moesim.cost.blocks import chunk_blocks, price_blocks
from moesim.cost.machine import Nccl
from moesim.cost.pipeline import step_times
from moesim.cost.transports import transports
from moesim.evaluator import evaluate
from moesim.problem import Problem
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies

APART = {"overlap_param_gather": False, "overlap_grad_reduce": False}
SHARDED = APART | {"pp": 1, "schedule": "none", "tp": 1, "ep": 1, "sequence_parallel": False}


@pytest.fixture(scope="module")
def node(variants: dict[str, Problem]) -> Problem:
    """A dense model on one node whose links have bandwidth and nothing else, so that time is traffic."""
    problem = variants["dense"].with_changes({"cluster.count": 1, "global_batch": 64})
    machine = problem.machine
    simple = replace(machine.links, fits={}, nvls=False, nccl=Nccl(protocols=("simple",)))
    wire = replace(simple, nvlink_base_latency=0.0, nvlink_latency=0.0, nvlink_ramp=0.0)
    return replace(problem, machine=replace(machine, links=wire))


def traffic(problem: Problem, **changes) -> tuple[float, int]:
    """Bytes that a rank exchanges for data parallelism in a step, over those of one byte a parameter; micro-batches."""
    plan = problem.plan(problem.strategy.replace(**(SHARDED | changes)))
    blocks = price_blocks(plan)
    times = step_times(plan, blocks)
    seconds = sum(
        float(times.durations[row]) for (kind, _), row in times.graph.rows.items() if kind in ("reduce", "gather")
    )
    for block in chunk_blocks(plan, plan.stages[0], blocks):
        messages = [op.seconds for op in (*block.forward, *block.backward) if op.op.category == "dp"]
        seconds += plan.num_micro_batches * float(sum(messages))
    share = (plan.mesh.dp - 1) / plan.mesh.dp
    return float(seconds * plan.machine.links.nvlink_bandwidth / share / plan.params[0].total), plan.num_micro_batches


@pytest.mark.parametrize("micro_batch", [8, 2])
@pytest.mark.parametrize("grad_dtype", ["fp32", "bf16"])
def test_traffic_of_each_sharding_is_that_of_its_collectives(node, micro_batch, grad_dtype):
    grad = {"fp32": 4, "bf16": 2}[grad_dtype]
    base = {"micro_batch": micro_batch, "grad_dtype": grad_dtype}
    m = 8 // micro_batch
    expected = {
        "ddp": 2 * grad,  # an all-reduce is a reduce-scatter and an all-gather
        "zero1": grad + 2,
        "zero2": m * grad + 2,
        "fsdp": m * (2 + 2 + grad),
        "hsdp": m * (2 + 2 + grad),  # in one node
    }
    for name, per_parameter in expected.items():
        found, micro_batches = traffic(node, **base, dp_sharding=name)
        assert micro_batches == m
        assert found == pytest.approx(per_parameter, rel=1e-9), name
    kept, _ = traffic(node, **base, dp_sharding="fsdp", reshard_after_forward=False)
    assert kept == pytest.approx(m * (2 + grad))


def test_shardings_are_ordered_in_traffic(node):
    """With as many bytes a gradient as a weight, splitting state costs nothing, splitting weights half as much again."""
    even = {
        name: traffic(node, grad_dtype="bf16", micro_batch=8, dp_sharding=name)[0]
        for name in ("ddp", "zero1", "zero2", "fsdp")
    }
    assert even["ddp"] == pytest.approx(even["zero1"]) == pytest.approx(even["zero2"])
    assert even["fsdp"] == pytest.approx(1.5 * even["ddp"])
    many = [traffic(node, micro_batch=1, dp_sharding=name)[0] for name in ("zero1", "zero2", "fsdp")]
    assert many == sorted(many)
    assert len(set(many)) == 3


@pytest.mark.parametrize(("flag", "kind"), [("overlap_grad_reduce", "reduce"), ("overlap_param_gather", "gather")])
def test_behind_a_chunk_all_but_one_layer_of_a_message_can_hide(node, flag, kind):
    def exposed(overlapped: bool) -> tuple[float, float, int, float]:
        changes = SHARDED | {"dp_sharding": "zero1", "overlap_grad_reduce": True, flag: overlapped}
        plan = node.plan(node.strategy.replace(**changes))
        times = step_times(plan, price_blocks(plan))
        message, chunk = (
            sum(float(times.durations[row]) for (name, _), row in times.graph.rows.items() if name == which)
            for which in (kind, "F" if kind == "gather" else "BW")
        )
        stage = plan.stages[0]
        share = float(plan.gather_share("F" if kind == "gather" else "BW"))
        return message, chunk, stage.num_layers + stage.embedding + stage.loss, share

    (apart, chunk, layers, share), (beside, *_) = exposed(False), exposed(True)
    left = max(apart / layers, apart - chunk * (1 - 1 / layers))
    assert beside == pytest.approx(left + share * (apart - left))  # what hides takes SMs from the kernels
    assert 0 < beside < apart


def peaks(problem: Problem, strategies):
    found = evaluate(problem, strategies)
    assert found.legal.all()
    return found.peak_bytes, found.step_time_s


PARTIAL = [name for name in policies.names() if not policies.get(name).whole_layer]


@pytest.mark.parametrize("name", ["small", "shared", "latent", "dense"])
@pytest.mark.parametrize("pp", [1, 4])
def test_recomputing_more_never_takes_more_memory_nor_less_time(variants, name, pp):
    problem = variants[name].with_changes({"pp": pp})
    alone = [(), *((policy,) for policy in PARTIAL), ("full",)]
    pairs = list(combinations(PARTIAL, 2))
    sets = [*alone, *pairs]
    memory, time = (
        dict(zip(sets, values.tolist(), strict=True))
        for values in peaks(problem, [problem.strategy.replace(recompute=chosen) for chosen in sets])
    )
    for chosen in sets[1:]:
        for fewer in ((),) if len(chosen) == 1 else ((chosen[0],), (chosen[1],)):
            assert memory[chosen] <= memory[fewer] * (1 + 1e-12), (chosen, fewer)
            assert time[chosen] >= time[fewer] * (1 - 1e-12), (chosen, fewer)
    assert memory["full",] == min(memory.values())


def test_a_capacity_and_a_hot_rank_stretch_time_and_memory(small):
    for transport in transports.names():
        base = small.strategy.replace(transport=transport)
        loads = [base.replace(rank_imbalance=load) for load in (1.0, 1.2, 1.5, 2.0)]
        padded = [base.replace(routing="capacity", capacity_factor=load) for load in (1.0, 1.2, 1.5, 2.0)]
        for strategies in (loads, padded):
            memory, time = peaks(small, strategies)
            assert all(more > less for less, more in pairwise(memory))
            assert all(more > less for less, more in pairwise(time))
        assert peaks(small, loads)[1].tolist() == peaks(small, padded)[1].tolist()
        # what is dropped above a capacity is not executed
        hot = base.replace(rank_imbalance=2.0)
        cut = peaks(small, [hot.replace(capacity_factor=1.2), loads[1], hot.replace(capacity_factor=3.0), hot])[1]
        assert cut[0] == cut[1] < cut[2] == cut[3]


FLAGS = ("overlap_tp", "overlap_grad_reduce", "overlap_param_gather", "overlap_p2p")


@pytest.mark.parametrize("flag", FLAGS)
def test_an_overlap_never_makes_a_step_slower(small, sample, flag):
    pairs = []
    for strategy in sample(60, 5):
        pair = [strategy.replace(**{flag: value}) for value in (False, True)]
        if flag == "overlap_grad_reduce":
            pair = [one.replace(overlap_param_gather=False) for one in pair]
        if not any(small.check(one) for one in pair):
            pairs.append(pair)
    assert len(pairs) >= 10
    apart, beside = (evaluate(small, list(side)).step_time_s for side in zip(*pairs, strict=True))
    assert (beside <= apart * (1 + 1e-12)).all()
    assert (beside < apart * (1 - 1e-9)).any()


def test_shared_experts_beside_the_exchange_never_make_a_step_slower(variants, sample):
    problem = variants["shared"]
    pairs = []
    for strategy in sample(40, 9):
        pair = [strategy.replace(overlap_shared_expert=value) for value in (False, True)]
        if strategy.ep > 1 and not any(problem.check(one) for one in pair):
            pairs.append(pair)  # with all experts on each rank there is no exchange to be beside of
    assert len(pairs) >= 10
    apart, beside = (evaluate(problem, list(side)).step_time_s for side in zip(*pairs, strict=True))
    assert (beside <= apart * (1 + 1e-12)).all()
    assert (beside < apart * (1 - 1e-9)).any()


LLAMA = {
    "tp": 8,
    "pp": 1,
    "global_batch": 64,
    "micro_batch": 1,
    "sequence_length": 8192,
    "overlap_tp": False,
    "cluster.count": 4,
}


@pytest.fixture(scope="module")
def llama() -> dict[str, Problem]:
    """A dense model of large products, on GPUs that know FP8, and on some that know all recipes."""
    return {node: moesim.from_names("llama3-70b", f"{node}:4").with_changes(LLAMA) for node in ("hgx-h100", "hgx-b200")}


@pytest.mark.parametrize(
    ("node", "precision"),
    [("hgx-h100", name) for name in recipes.names() if name.startswith("fp8-")]
    + [("hgx-b200", name) for name in recipes.names() if recipes.get(name).casts],
)
def test_low_precision_multiplies_faster_casts_and_keeps_less(llama, node, precision):
    problem = llama[node]
    high, low = (moesim.estimate(problem, problem.strategy.replace(precision=name)) for name in ("bf16", precision))
    assert low.breakdown_s["gemm"] < 0.8 * high.breakdown_s["gemm"]
    assert low.breakdown_s["memory_bound"] > high.breakdown_s["memory_bound"]
    assert low.breakdown_s["attention"] == pytest.approx(high.breakdown_s["attention"])
    assert low.step_time_s < high.step_time_s
    saved = recipes.get(precision).saved_bytes
    activations = [answer.memory.stages[0]["activations_bytes"] for answer in (low, high)]
    assert (activations[0] < activations[1]) == (saved < 2)
    assert low.model_flop_per_token == high.model_flop_per_token


def test_fewer_bits_multiply_faster(llama):
    problem = llama["hgx-b200"]
    order = [moesim.estimate(problem, problem.strategy.replace(precision=name)) for name in ("bf16", "mxfp8", "nvfp4")]
    gemm = [answer.breakdown_s["gemm"] for answer in order]
    assert gemm == sorted(gemm, reverse=True)
    assert len(set(gemm)) == 3
