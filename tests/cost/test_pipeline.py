"""Durations of a whole step against the formulas of its parts."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.blocks import chunk_blocks, price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.machine import Group
from moesim.cost.memory_bound import traffic_time
from moesim.cost.pipeline import boundary_time, plan_graph, step_times
from moesim.cost.replication import gradient_reduction_time, parameter_gather_time
from moesim.cost.update import optimizer_time
from moesim.timeline.run import run
from moesim.workload.sharding import RankParams


def step(problem, **changes):
    plan = problem.plan(problem.strategy.replace(**changes))
    return plan, step_times(plan, price_blocks(plan))


def makespan(times):
    return float(run(times.graph.graph, times.durations, times.delays).makespan)


def rows(times, kind):
    return {where: times.durations[row] for (name, where), row in times.graph.rows.items() if name == kind}


def test_without_a_pipeline_the_step_is_a_sum(small):
    plan, times = step(small, pp=1, schedule="none", overlap_grad_reduce=False, overlap_param_gather=False)
    parts = {kind: float(rows(times, kind)[0]) for kind in ("F", "BW", "reduce", "gather", "optimizer")}
    whole = plan.num_micro_batches * (parts["F"] + parts["BW"])
    expected = whole + parts["reduce"] + parts["optimizer"] + parts["gather"]
    assert makespan(times) == pytest.approx(expected, rel=1e-12)
    assert plan.num_micro_batches == 128 / 32


def test_a_chunk_is_its_layers_one_after_another(small):
    plan, times = step(small, pp=1, schedule="none")
    blocks = price_blocks(plan)
    pieces = chunk_blocks(plan, plan.stages[0], blocks)
    assert len(pieces) == 1 + 8 + 1
    device = sum(float(priced.seconds) for block in pieces for priced in block.forward)
    assert float(rows(times, "F")[0]) >= device  # launches and syncs come on top
    assert float(rows(times, "F")[0]) < 1.5 * device


def test_stages_alike_take_alike(small):
    _, times = step(small, pp=4, schedule="1f1b")
    forward = rows(times, "F")
    assert forward[1] == forward[2]
    assert forward[0] > forward[1]  # the embedding
    assert forward[3] > forward[1]  # the loss


def test_durations_are_the_sums_of_their_categories(small):
    for changes in (
        {},
        {"overlap_p2p": False},
        {"pp": 4, "vpp": 2, "schedule": "interleaved-1f1b", "overlap_ep": True},
    ):
        _, times = step(small, **changes)
        for row in times.graph.rows.values():
            assert sum(times.categories(row).values()) == pytest.approx(float(times.durations[row]), rel=1e-12)


@pytest.mark.parametrize("collective_of_gradients", [("ddp", "all-reduce"), ("zero1", "reduce-scatter")])
def test_gradients_are_reduced_over_the_replicas_of_each_kind(small, collective_of_gradients):
    sharding, collective = collective_of_gradients
    plan = small.plan(small.strategy.replace(dp_sharding=sharding, overlap_param_gather=False, ep=4, pp=2))
    params, links = plan.params[0], plan.machine.links
    # tp 2 x pp 2 x dp 16: replicas of dense parameters every second rank, four in a node
    dense = collective_time(collective, 4 * params.dense, Group(16.0, 4.0), links)
    # ep 4: replicas of an expert every fourth rank, two in a node
    routed = collective_time(collective, 4 * params.routed, Group(8.0, 2.0), links)
    assert gradient_reduction_time(plan, params) == pytest.approx(dense + routed, rel=1e-14)
    assert parameter_gather_time(plan, params) == pytest.approx(
        collective_time("all-gather", 2 * params.dense, Group(16.0, 4.0), links)
        + collective_time("all-gather", 2 * params.routed, Group(8.0, 2.0), links),
        rel=1e-14,
    )


def test_a_stage_without_experts_reduces_none(small):
    plan = small.plan()
    alone = gradient_reduction_time(plan, RankParams(1e6, 0.0))
    assert alone == collective_time("reduce-scatter", 4e6, plan.machine.group(plan.mesh, "dp-cp"), plan.machine.links)


def test_the_optimizer_is_bound_by_memory(small):
    plan = small.plan(small.strategy.replace(dp_sharding="ddp", overlap_param_gather=False))
    total = plan.params[1].total
    assert optimizer_time(plan, 1) == traffic_time(total * (4 + 8 + 24 + 2), plan.machine.gpu)
    assert optimizer_time(small.plan(), 1) < optimizer_time(plan, 1)


def test_a_boundary_costs_a_message_of_the_sequence_shard(small):
    plan = small.plan(small.strategy.replace(pp=4, tp=2))
    payload = 2 * 2048 / 2 * 2048
    links = plan.machine.links
    assert boundary_time(plan, 0) == collective_time(
        "send-recv", payload, Group(2.0, 1.0), links
    )  # a stage is two nodes
    assert boundary_time(plan, 0) > payload / links.nic_bandwidth
    one_node = small.with_changes({"cluster.count": 1, "global_batch": 16})
    plan = one_node.plan(one_node.strategy.replace(pp=4, tp=2, ep=2))
    links = plan.machine.links
    assert boundary_time(plan, 2) == collective_time(
        "send-recv", payload, Group(2.0, 2.0), links
    )  # a stage is two GPUs


def test_overlapped_sends_are_delays_and_blocking_ones_are_work(small):
    shape = {"pp": 4, "vpp": 2, "schedule": "interleaved-1f1b"}
    plan, beside = step(small, **shape, overlap_p2p=True)
    _, blocking = step(small, **shape, overlap_p2p=False)
    send = boundary_time(plan, 1)
    assert beside.delays[2] == send
    assert not blocking.delays.any()
    for stage, durations in rows(beside, "F").items():
        outgoing = 0 if stage == 7 else send
        assert rows(blocking, "F")[stage] == pytest.approx(durations + outgoing, rel=1e-12)
    for stage, durations in rows(beside, "BW").items():
        outgoing = 0 if stage == 0 else send
        assert rows(blocking, "BW")[stage] == pytest.approx(durations + outgoing, rel=1e-12)
    assert makespan(beside) < makespan(blocking)


def test_a_hidden_class_vanishes_from_its_column(small):
    plan = small.plan()
    keep = {"dp": np.array([1.0, 0.0]), "pp": np.array([1.0, 1.0])}
    wide = replace(plan, shape=(2,))
    times = step_times(wide, price_blocks(wide), keep)
    assert (rows(times, "reduce")[0] > 0).tolist() == [True, False]
    assert rows(times, "F")[0][0] == rows(times, "F")[0][1]


def test_a_merged_pair_takes_less_than_its_halves_and_more_than_either(small):
    _, times = step(small, pp=4, vpp=2, schedule="interleaved-1f1b", overlap_ep=True, ep=16)
    forward, backward = rows(times, "F"), rows(times, "BW")
    merged = rows(times, "OV")
    assert merged
    for (front, back), seconds in merged.items():
        assert seconds > max(forward.get(front, forward[1]), backward.get(back, backward[1]))
        assert seconds < forward.get(front, forward[1]) + backward.get(back, backward[1])


def test_the_graph_follows_the_flags(small):
    def kinds(**changes):
        return {kind for kind, _ in plan_graph(small.plan(small.strategy.replace(**changes))).rows}

    assert kinds() == {"F", "BW", "reduce", "gather", "optimizer"}
    assert kinds(dp_sharding="ddp", overlap_param_gather=False) == {"F", "BW", "reduce", "optimizer"}
