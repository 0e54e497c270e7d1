"""What a class of communication adds to a step is never below nothing: no task takes longer where a class is hidden."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import moesim
from moesim.cost.blocks import price_blocks
from moesim.cost.contention import Contention
from moesim.cost.exchanges import behind, carried, windows
from moesim.cost.pipeline import step_times
from moesim.cost.replication import parameter_gather_time, stage_reduction_time
from moesim.cost.stage import HostTimes, PricedOp, chunk_work, interleaved, sequential
from moesim.timeline.run import run
from moesim.timeline.schedules import find_schedule
from moesim.timeline.step import step_graph
from moesim.timeline.tasks import NIC
from moesim.workload.ops import Op, Traffic

SECONDS, SHARE = st.floats(1e-6, 100.0), st.floats(0.0, 1.0)
HIDDEN = {"ep": np.array([1.0, 0.0, 1.0]), "dp": np.array([1.0, 1.0, 0.0])}
"""A column with everything, one without the exchange, one without gathers."""
LAYER = (
    Op("weights", "dp", Traffic(1.0), prefetch=True),
    Op("attention", "gemm", Traffic(1.0)),
    Op("dispatch", "ep", Traffic(1.0), segment="dispatch"),
    Op("shared-up", "gemm", Traffic(1.0), segment="dispatch", beside=True),
    Op("join-up", "memory_bound", Traffic(1.0), segment="dispatch", needs=("dispatch", "shared-up")),
    Op("experts", "grouped_gemm", Traffic(1.0), segment="experts"),
    Op("combine", "ep", Traffic(1.0), segment="combine"),
    Op("shared-down", "gemm", Traffic(1.0), segment="combine", beside=True),
    Op("join-down", "memory_bound", Traffic(1.0), segment="combine", needs=("combine", "shared-down")),
)
"""A gather ahead, kernels of two kinds, and two legs with shared products of their own beside them."""
GATHERED = [2.0, 20.0, 5.0, 4.0, 0.1, 9.0, 5.0, 4.0, 0.1]


@given(st.lists(SECONDS, min_size=len(LAYER), max_size=len(LAYER)), st.tuples(SHARE, st.floats(0, 4), SHARE, SHARE))
@example(GATHERED, (0.2, 0.5, 0.2, 0.9))
def test_no_operation_takes_longer_where_a_class_is_hidden(times, slowdowns):
    """Kernels are slowed by gathers first, all alike, and then by the leg beside them, some more than others."""
    kernels, exchange, gathers, grouped = slowdowns
    layer = tuple(PricedOp(op, seconds, 0.0) for op, seconds in zip(LAYER, times, strict=True))
    for contention in (
        Contention(kernels, exchange, gathers, own=True),
        Contention(kernels, exchange, gathers, {"grouped_gemm": grouped}),
    ):
        for pieces in (sequential([layer, layer]), interleaved([layer], [layer])):
            found, alone = (
                chunk_work(pieces, (3,), HostTimes(0.0), told, HIDDEN).durations for told in (contention, Contention())
            )
            assert (found[:, 1:] <= found[:, :1] * (1 + 1e-12)).all()
            assert (found >= alone * (1 - 1e-12)).all()


@given(SECONDS, st.tuples(SECONDS, SECONDS), st.tuples(SHARE, SHARE), st.integers(1, 40), SHARE)
def test_a_longer_chunk_and_what_is_left_behind_it_never_end_earlier(seconds, chunks, busy, pieces, share):
    """The NIC is busy for a part of the shorter chunk, and of what the longer one takes more."""
    short, long = sorted(chunks)
    used = busy[0] * short, busy[0] * short + busy[1] * (long - short)
    left = [
        behind(seconds, chunk - on_nic, float(pieces), share) for chunk, on_nic in zip((short, long), used, strict=True)
    ]
    assert long + left[1] >= (short + left[0]) * (1 - 1e-12)
    assert seconds / pieces * (1 - 1e-12) <= min(left) <= max(left) <= seconds * (1 + 1e-12)


def on_slow_links(problem, bandwidth):
    """The problem with another rate of its NICs, and still without the rules of a framework."""
    return replace(problem.with_changes({"overrides.nic.bandwidth": bandwidth}), software=problem.software)


def adds_up(problem, strategy):
    answer = moesim.estimate(problem, strategy)
    assert all(-1e-12 <= seconds / answer.step_time_s < 1 for seconds in answer.exposed_s.values()), answer.exposed_s
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-12)
    return answer


ROUTED = {"transport": "nvshmem-rowwise", "overlap_shared_expert": True, "overlap_param_gather": False}


@pytest.mark.parametrize(
    "changes",
    [
        {"dp_sharding": "hsdp", "overlap_grad_reduce": False},
        {"dp_sharding": "hsdp", "overlap_grad_reduce": False, "routing": "power-law:1.1", "capacity_factor": 1.25},
        {
            "dp_sharding": "fsdp",
            "pp": 4,
            "vpp": 2,
            "schedule": "interleaved-1f1b",
            "layout": "count-embedding-and-loss",
        },
    ],
)
def test_shared_experts_beside_an_exchange_and_gathers(changes):
    """Some kernels have a leg beside them, all have gathers: hidden legs must not spread the gathers' slowdown wider."""
    problem = moesim.from_names("moonlight-16b-a3b", "hgx-h100:4", "olmo-core")
    problem = problem.with_changes({"ep": 8, "sequence_length": 4096, "global_batch": 128})
    answer = adds_up(problem, problem.strategy.replace(**ROUTED | changes))
    assert answer.exposed_s["ep"] < 0.1 * answer.step_time_s  # as good as hidden


TWO_CHUNKS = {"tp": 1, "sequence_parallel": False, "pp": 2, "vpp": 2, "schedule": "interleaved-1f1b"}
SHARDED = {"dp_sharding": "zero1", "overlap_grad_reduce": True, "overlap_param_gather": True}


@pytest.mark.parametrize("bandwidth", ["400 Gb/s", "20 Gb/s", "1 Gb/s"])
@pytest.mark.parametrize(
    "changes",
    [
        {"stale_gradients": True},
        {"stale_gradients": True, **TWO_CHUNKS, "overlap_p2p": True},
        {**TWO_CHUNKS, "overlap_p2p": True},
        {**TWO_CHUNKS, "overlap_p2p": True, "overlap_ep": True},
        {"overlap_p2p": True, "schedule": "zb-h1"},
    ],
)
def test_messages_that_share_a_nic(free, bandwidth, changes):
    problem = on_slow_links(free, bandwidth)
    adds_up(problem, problem.strategy.replace(**SHARDED | changes))


@pytest.mark.parametrize("stale", [False, True])
def test_the_nic_carries_all_of_every_exchange(free, stale):
    """What hides beside a chunk is on the NIC all the same: the next gather and the last reduction wait for it."""
    slow = on_slow_links(free, "1 Gb/s")
    plan = slow.plan(slow.strategy.replace(**SHARDED | TWO_CHUNKS, stale_gradients=stale))
    times = step_times(plan, price_blocks(plan))
    found, graph = run(times.graph.graph, times.durations, times.delays), times.graph
    for rank in range(2):
        own = [stage for stage, at in enumerate(graph.stage_rank) if at == rank]
        gathers = sum(float(parameter_gather_time(plan, plan.trained[stage])) for stage in own)
        reductions = sum(float(stage_reduction_time(plan, stage)) for stage in own)
        tasks = graph.tasks_of(rank, NIC)
        if stale:  # gathers and reductions of the start of the step, without a pause
            assert found.end[tasks[-1]] == pytest.approx(gathers + reductions)
        else:
            hidden = reductions - float((found.end - found.start)[tasks[len(own) :]].sum())
            first_window = times.durations[graph.rows[windows(graph)["reduce", max(own)]]]
            assert 0 < hidden <= float(first_window)  # only the first one hides: the others find the NIC taken
    kinds = [(longer[0], hidden[0]) for longer, hidden in carried(graph, stale)]
    other = ("reduce", "gather") if stale else ("reduce", "reduce")
    assert sorted(kinds) == [("gather", "gather")] * 2 + [other] * 2


@pytest.mark.parametrize(
    ("schedule", "vpp", "expected"), [("1f1b", 1, {"BW"}), ("zb-h1", 1, {"W"}), ("dualpipev", 2, {"W", "BW"})]
)
@pytest.mark.parametrize("merge", [False, True])
def test_an_exchange_hides_beside_a_chunk_at_the_end_of_its_stage(schedule, vpp, expected, merge):
    """DualPipeV splits the backward of most micro-batches, and the last one of its last stage is whole."""
    graph = step_graph(find_schedule(schedule), 2, 8, vpp, merge_pairs=merge, grad_reduce="overlap")
    found = windows(graph)
    stages = range(graph.num_stages)
    assert [found["gather", stage] for stage in stages] == [("F", stage) for stage in stages]
    assert {found["reduce", stage][0] for stage in stages} == expected
    for stage in stages:
        chunk = graph.graph.duration_row == graph.rows[found["reduce", stage]]
        reduction = np.flatnonzero(graph.graph.duration_row == graph.rows["reduce", stage]).item()
        assert np.flatnonzero(chunk)[-1] in graph.graph.preds[reduction]
