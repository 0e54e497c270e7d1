"""Interactions of methods that are published: each is refused by a rule with a source, or priced."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moesim
from moesim.cost.blocks import price_blocks
from moesim.cost.transports import leg_time, transports
from moesim.spec.check import sources
from moesim.workload.ops import ExpertLeg, Message

with Path(__file__).with_name("interactions.csv").open(encoding="utf-8") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}

REFUSED: dict[str, tuple[str, str | None, dict[str, Any], str]] = {
    "graph-sync-free": ("olmo-4g03", None, {"cuda_graph": "moe", "transport": "nccl-alltoall"}, "cuda-graph-syncs"),
    "halves-recompute": (
        "olmo-4g03",
        None,
        {"two_batch_overlap": True, "recompute": ("full",)},
        "two-batches-recompute",
    ),
    "halves-mxfp8": (
        "olmo-4g02",
        "olmo-core",
        {"two_batch_overlap": True},
        "olmo-core: two-batches-in-bf16",
    ),
    "halves-pipeline": (
        "olmo-4g03",
        "olmo-core",
        {"two_batch_overlap": True, "pp": 2, "ep": 2, "schedule": "1f1b"},
        "olmo-core: two-batches-in-bf16",
    ),
    "two-chunks": (
        "olmo-4g03",
        "olmo-core",
        {"pp": 2, "ep": 2, "vpp": 4, "schedule": "interleaved-1f1b", "overlap_p2p": True},
        "olmo-core: two-chunks-a-rank",
    ),
    "micro-batches": (
        "qwen3-235b-h100x256",
        "megatron-core",
        {"global_batch": None},
        "megatron-core: interleaving-needs-micro-batches-by-pp",
    ),
    "split-compiled": (
        "olmo-4g03",
        "olmo-core",
        {"pp": 2, "ep": 2, "schedule": "zb-h1"},
        "olmo-core: schedules",
    ),
    "ulysses-heads": ("olmo-4g03", None, {"cp": 3, "cp_kind": "ulysses"}, "ulysses-heads"),
}
"""Run, framework (none: its rules are left out), choices, and the rule that refuses them."""


def free(name: str) -> moesim.Problem:
    """A run with a framework that refuses nothing."""
    problem = moesim.load(name)
    return replace(problem, software=problem.software.model_copy(update={"rules": ()}))


@pytest.fixture(scope="module")
def four():
    return free("olmo-4g03")


@pytest.fixture(scope="module")
def eight():
    """The same model on two nodes of eight."""
    problem = moesim.from_names("olmo-8l-32e", "hgx-b300:2", "olmo-core")
    problem = problem.with_changes({"sequence_length": 8192, "global_batch": 256, "micro_batch": 2, "ep": 8})
    return replace(problem, software=problem.software.model_copy(update={"rules": ()}))


def memory(problem, part, **changes):
    stages = moesim.estimate(problem, problem.strategy.replace(**changes)).memory.stages
    return np.array([stage[f"{part}_bytes"] for stage in stages])


def routed(problem, **changes):
    plan = problem.plan(problem.strategy.replace(**changes))
    return next(b for name, b in price_blocks(plan).items() if not isinstance(name, str) and name[0].moe)


def legs(block):
    return [op.op for op in (*block.forward, *block.backward) if isinstance(op.op.work, ExpertLeg)]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_source(name):
    run, software, changes, rule = REFUSED[name]
    problem = free(run) if software is None else moesim.load(run).with_changes({"software": software})
    if "global_batch" in changes:
        strategy = problem.strategy
        odd = int(problem.plan().num_micro_batches) + 1
        batch = problem.global_batch // int(problem.plan().num_micro_batches) * odd
        problem, changes = problem.with_changes({"global_batch": batch}), {}
        assert strategy.vpp > 1
        assert odd % strategy.pp
    broken = {one.violation.rule: one.violation for one in problem.check(problem.strategy.replace(**changes))}
    assert rule in broken
    assert broken[rule].source in sources()
    assert broken[rule].legal


def test_static_inputs_of_graphs_are_kept_for_each_live_micro_batch(four):
    """One hidden state a layer and live micro-batch."""
    pipeline = {"pp": 2, "ep": 2, "schedule": "1f1b"}
    first, last = memory(four, "activations", **pipeline, cuda_graph="attn") - memory(four, "activations", **pipeline)
    row = 2 * 2 * 8192 * 4096
    assert first == pytest.approx(2 * 4 * row)  # four layers on each rank, two micro-batches in flight on the first
    assert last == pytest.approx(4 * row)


def test_rowwise_buffers_follow_the_chunks_in_flight_until_the_block_is_recomputed(four):
    rows = 1.25 * 16384 * 4 * 2 * 4096
    pipeline = {"pp": 2, "ep": 2, "schedule": "1f1b"}
    assert memory(four, "transport", ep=1) == [0]
    assert memory(four, "transport", **pipeline) == pytest.approx([(2 * 3 + 1) * rows, (4 + 1) * rows])
    assert memory(four, "transport", **pipeline, recompute=("full",)) == pytest.approx([2 * rows, 2 * rows])


def test_row_by_row_is_for_the_inside_of_a_node(eight):
    times = {}
    for ep in (8, 16):
        plan = eight.plan(eight.strategy.replace(ep=ep))
        for name in ("nvshmem-rowwise", "deepep-v2"):
            found = leg_time(transports.get(name), plan.leg, plan.expert_group, plan.machine)
            times[name, ep] = float(found)
    assert times["nvshmem-rowwise", 16] > times["deepep-v2", 16]
    grown = {name: times[name, 16] / times[name, 8] for name, _ in times}
    assert grown["nvshmem-rowwise"] > grown["deepep-v2"]


def test_only_what_mxfp8_serves_is_in_it(four):
    low = {"precision": "mxfp8", "fp8_params": True, "dispatch_precision": "recipe"}
    bf16, mxfp8 = routed(four), routed(four, **low)

    def products(block, end):
        found = (*block.forward, *block.backward)
        return sum(float(op.seconds) for op in found if op.op.category == "grouped_gemm" and op.op.name.endswith(end))

    assert products(mxfp8, "-dgrad") < 0.75 * products(bf16, "-dgrad")
    assert products(mxfp8, "-wgrad") > 0.9 * products(bf16, "-wgrad")
    sizes = {op.name: float(op.work.row_bytes) / 4096 for op in legs(routed(four, **low, transport="deepep-v2"))}
    assert sizes.pop("dispatch") == 33 / 32
    assert set(sizes.values()) == {2.0}


def test_two_copies_of_the_parameters_under_dualpipe(four):
    held = {
        name: memory(four, "weights", pp=2, ep=2, micro_batch=1, schedule=name, dp_sharding="ddp").sum()
        for name in ("1f1b", "dualpipe")
    }
    assert held["dualpipe"] == pytest.approx(2 * held["1f1b"])


def test_sharded_state_is_split_over_a_parameters_own_replicas(eight):
    """Dense parameters have 16 replicas, experts 2: weights, and the moments of a sharded optimizer."""
    params = eight.plan().params[0]
    assert float(eight.plan().mesh.edp) == 2
    value = 4 if eight.plan(eight.strategy.replace(dp_sharding="fsdp")).state_types.param == 4 else 2
    assert memory(eight, "weights", dp_sharding="fsdp")[0] == pytest.approx(
        value * (params.dense / 16 + params.routed / 2)
    )
    assert memory(eight, "optimizer", dp_sharding="zero1")[0] == pytest.approx(
        12 * (params.dense / 16 + params.routed / 2)
    )


def test_sharded_weights_are_gathered_for_each_micro_batch(eight):
    def gathers(**changes):
        strategy = eight.strategy.replace(dp_sharding="fsdp", pp=2, schedule="1f1b", ep=8, **changes)
        block = next(b for n, b in price_blocks(eight.plan(strategy)).items() if not isinstance(n, str) and n[0].moe)
        return [op.op.name for op in (*block.forward, *block.backward) if _gathers(op.op.work)]

    assert len(gathers()) == 2 * len(gathers(reshard_after_forward=False))
    once, twice = (
        moesim.estimate(problem, problem.strategy.replace(dp_sharding="fsdp")).exposed_s["dp"]
        for problem in (eight, eight.with_changes({"global_batch": 512}))
    )
    assert twice > 1.5 * once


def _gathers(work):
    return isinstance(work, Message) and work.collective == "all-gather" and work.axis.endswith("-shard")


def test_context_parallel_ranks_are_data_ranks_of_the_experts(eight):
    alone, split = (eight.plan(eight.strategy.replace(cp=cp, cp_kind="ulysses")).mesh for cp in (1, 2))
    assert split.dp == alone.dp / 2
    assert split.edp == alone.edp


def test_recomputing_the_routed_block_repeats_its_exchange(four):
    assert len(legs(routed(four))) == 4
    assert [op.name for op in legs(routed(four, recompute=("full",)))].count("dispatch again") == 1
    assert len(legs(routed(four, recompute=("full",)))) == 6
    assert len(legs(routed(four, recompute=("moe_act",)))) == 4


def test_a_capacity_leaves_the_requested_and_runs_the_kept(four):
    whole, capped = (
        moesim.estimate(four, four.strategy.replace(routing="zipf:1.0", capacity_factor=factor))
        for factor in (None, 1.0)
    )
    dropped = [answer.routing["dropped_share"] for answer in (whole, capped) if answer.routing is not None]
    assert dropped[0] == 0
    assert dropped[1] == pytest.approx(0.5, abs=0.499)
    assert capped.breakdown_s["grouped_gemm"] < whole.breakdown_s["grouped_gemm"]
    assert capped.mfu > whole.mfu  # utilisation counts what was asked for


def test_an_overlapped_exchange_stretches_what_is_beside_it(four):
    """No overlap is better than hiding the exchange for nothing."""
    alone = four.strategy.replace(overlap_shared_expert=False)
    base = moesim.estimate(four, alone)
    for changes in (
        {"two_batch_overlap": True},
        {"expert_waves": 2},
        {"delay_wgrad": True},
        {"overlap_shared_expert": True},
    ):
        found = moesim.estimate(four, alone.replace(**changes))
        assert found.step_time_s > base.step_time_s - base.exposed_s["ep"]
    plan = four.plan(alone.replace(two_batch_overlap=True))
    assert float(plan.contention("F").exchange) > 0
    assert all(float(value) > 0 for value in plan.contention("F").by_category.values())


PRICED = {
    "graph-slots": test_static_inputs_of_graphs_are_kept_for_each_live_micro_batch,
    "rowwise-symmetric": test_rowwise_buffers_follow_the_chunks_in_flight_until_the_block_is_recomputed,
    "leases-high-water": test_rowwise_buffers_follow_the_chunks_in_flight_until_the_block_is_recomputed,
    "leases-recompute": test_rowwise_buffers_follow_the_chunks_in_flight_until_the_block_is_recomputed,
    "rowwise-nic": test_row_by_row_is_for_the_inside_of_a_node,
    "mxfp8-wgrad": test_only_what_mxfp8_serves_is_in_it,
    "mxfp8-legs": test_only_what_mxfp8_serves_is_in_it,
    "dualpipe-copies": test_two_copies_of_the_parameters_under_dualpipe,
    "fsdp-two-meshes": test_sharded_state_is_split_over_a_parameters_own_replicas,
    "optimizer-groups": test_sharded_state_is_split_over_a_parameters_own_replicas,
    "fsdp-micro-batches": test_sharded_weights_are_gathered_for_each_micro_batch,
    "fsdp-kept": test_sharded_weights_are_gathered_for_each_micro_batch,
    "cp-folds": test_context_parallel_ranks_are_data_ranks_of_the_experts,
    "recompute-legs": test_recomputing_the_routed_block_repeats_its_exchange,
    "recompute-part": test_recomputing_the_routed_block_repeats_its_exchange,
    "capacity-kept": test_a_capacity_leaves_the_requested_and_runs_the_kept,
    "overlap-cost": test_an_overlapped_exchange_stretches_what_is_beside_it,
}
"""The test that shows the price of an interaction."""


def test_every_interaction_is_refused_or_priced():
    assert set(REFUSED) | set(PRICED) == set(ROWS)
    assert not set(REFUSED) & set(PRICED)
    assert {row["source"] for row in ROWS.values()} <= set(sources())
