"""Overlaps of the expert exchange: waves, two half micro-batches, delayed weight gradients, and what they cost each other."""

from dataclasses import replace

import numpy as np
import pytest

import moesim
from moesim.cost.blocks import price_blocks
from moesim.cost.contention import Contention, stretched
from moesim.cost.stage import HostTimes, PricedOp, chunk_time, interleaved, sequential, two_batches
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.studies.explain import explain
from moesim.workload.ops import Op, Traffic

ONE_STAGE = {"pp": 1, "schedule": "none", "tp": 1, "sequence_parallel": False, "micro_batch": 2}


def problem_strategy(problem, **changes):
    return problem.strategy.replace(**ONE_STAGE | {"transport": "nvshmem-rowwise"} | changes)


def block(problem, **changes):
    plan = problem.plan(problem_strategy(problem, **changes))
    return plan, next(block for name, block in price_blocks(plan).items() if not isinstance(name, str))


def seconds(ops, times, share=0.0):
    """A chain of operations, each with the time of the first name that its own begins with, else 0."""

    def priced(one):
        found = [value for name, value in times.items() if one.op.name.startswith(name)]
        return PricedOp(one.op, found[0] if found else 0.0, 0.0)

    return float(chunk_time(sequential([tuple(priced(one) for one in ops)]), (), HostTimes(0.0), share, {}).seconds)


@pytest.mark.parametrize(("waves", "expected"), [(1, 14.0), (2, 10.0), (4, 8.0)])
def test_a_wave_is_multiplied_while_another_travels(free, waves, expected):
    """Dispatch 4, products 6, combine 4. Two waves: rows at 2 and 4, products to 5 and 8, back at 7 and 10.

    Four waves: rows at 1, 2, 3 and 4, products to 2.5, 4, 5.5 and 7; the first return waits for the last dispatch.
    """
    _, one = block(free, expert_waves=waves)
    part = 1 / waves
    times = {"dispatch": 4 * part, "combine": 4 * part, "expert-up": 3 * part, "expert-down": 3 * part}
    assert seconds(one.forward, times) == pytest.approx(expected)


def test_waves_work_on_parts_of_the_rows(free):
    _, whole = block(free)
    _, cut = block(free, expert_waves=4)
    for direction in ("forward", "backward"):
        one, four = (getattr(each, direction) for each in (whole, cut))
        assert sum(float(op.op.work.flop) for op in four) == pytest.approx(sum(float(op.op.work.flop) for op in one))
        for name in ("dispatch", "combine"):
            tokens = [
                sum(float(op.op.work.tokens) for op in ops if op.op.category == "ep" and op.op.name.startswith(name))
                for ops in (one, four)
            ]
            assert tokens[0] == pytest.approx(tokens[1])
    ups = [op.op.work for op in cut.forward if op.op.name.startswith("expert-up")]
    assert len(ups) == 4
    assert {work.m for work in ups} == {2 * 2048 * 4 / 4 / 4}
    counted = [op.op.name for op in cut.forward if getattr(op.op.work, "counts", False)]
    assert counted == ["dispatch 1"]


def test_delayed_weight_gradients_run_beside_the_way_back(free):
    times = {
        "combine-backward": 4.0,
        "dispatch-backward": 4.0,
        "expert-down-dgrad": 1.0,
        "expert-up-dgrad": 1.0,
        "expert-down-wgrad": 1.0,
        "expert-up-wgrad": 1.0,
    }
    _, plain = block(free)
    _, delayed = block(free, delay_wgrad=True)
    assert seconds(plain.backward, times) == 12.0
    assert seconds(delayed.backward, times) == 10.0
    long = times | {"expert-down-wgrad": 3.0, "expert-up-wgrad": 3.0}
    assert seconds(delayed.backward, long) == 12.0  # 4, 2, then 6 of products beside 4 of exchange
    same = [sorted(op.op.name for op in one.backward if not op.op.name.endswith("join")) for one in (plain, delayed)]
    assert same[0] == same[1]


def layer(scale=1.0, back=False):
    """Attention 4, dispatch 3, experts 4, combine 3 and the residual 1 behind it."""
    chain = [
        ("attention", "gemm", 4.0, "attention"),
        ("dispatch", "ep", 3.0, "dispatch"),
        ("experts", "gemm", 4.0, "experts"),
        ("combine", "ep", 3.0, "combine"),
        ("residual", "memory_bound", 1.0, "combine"),
    ]
    ops = [
        PricedOp(Op(name, category, Traffic(1.0), segment=segment), value * scale, 0.0)
        for name, category, value, segment in chain
    ]
    return tuple(ops[::-1] if back else ops)


def makespan(pieces):
    return float(chunk_time(pieces, (), HostTimes(0.0), 0.0, {}).seconds)


@pytest.mark.parametrize("back", [False, True])
def test_two_halves_hide_every_exchange_but_the_one_at_the_end(back):
    """Each leg of a half, 1.5, has kernels of the other half beside it: 2, and 2.5 with the residual of the layer before.

    What sticks out is the last combine behind the residual, 0.5, of the first half; in the backward, what mirrors them.
    """
    assert makespan(two_batches([layer(0.5, back)] * 4, backward=back)) == pytest.approx(4 * 9.0 + 1.5 - 0.5)
    assert makespan(sequential([layer(1.0, back)] * 4)) == 4 * 15.0


def test_a_layer_without_experts_is_beside_the_last_combine():
    """Its first half runs beside the combine of the second half of the layer before: nothing of that sticks out."""
    plain = (PricedOp(Op("dense", "gemm", Traffic(1.0), segment="attention"), 2.0, 0.0),)
    for back, layers in ((False, [layer(0.5), plain]), (True, [plain, layer(0.5, back=True)])):
        assert makespan(two_batches(layers, backward=back)) == pytest.approx(9.0 + 2 * 2.0)


@pytest.mark.parametrize("back", [False, True])
def test_nothing_of_an_mtp_module_is_lost(back):
    """Its head stands behind the combine, in a backward before it, and is in no segment of a layer."""
    head = PricedOp(Op("head", "gemm", Traffic(1.0), segment="head"), 1.0, 0.0)
    module = (head, *layer(0.5, back)) if back else (*layer(0.5, back), head)
    other = [layer(0.5, not back)]
    pair = interleaved(other, [module]) if back else interleaved([module], other)
    for pieces, times in ((two_batches([module], backward=back), 2), (pair, 1)):
        assert sum(priced is head for piece in pieces for priced in piece.ops) == times


def test_contention_by_hand():
    device = np.array([4.0, 5.0, 5.0])
    lanes = np.array([True, False, False])
    found = stretched(
        device, ["ep", "gemm", "attention"], lanes, ~lanes, np.ones(3), Contention(0.1, 0.5, by_category={"gemm": 0.2})
    )
    # the exchange, all beside kernels, takes 6; 6 of 10 seconds of kernels run beside it
    assert found.tolist() == pytest.approx([6.0, 5 * 1.12, 5 * 1.06])
    # an exchange of 20: half of it has kernels beside it and all kernels are slower
    found = stretched(
        device * [5, 1, 1],
        ["ep", "gemm", "attention"],
        lanes,
        ~lanes,
        np.ones(3),
        Contention(0.1, 0.5, by_category={"gemm": 0.2}),
    )
    assert found.tolist() == pytest.approx([25.0, 6.0, 5.5])
    assert stretched(device, ["ep"] * 3, lanes, ~lanes, np.ones(3), Contention()).tolist() == device.tolist()


def beside_a_leg():
    """Attention 4; dispatch 4 with shared products of 2 beside it; experts 4; combine 4 with one of 10 beside it."""

    def op(name, category, value, **more):
        return PricedOp(Op(name, category, Traffic(1.0), **more), value, 0.0)

    return (
        op("attention", "gemm", 4.0),
        op("dispatch", "ep", 4.0),
        op("shared-up", "gemm", 2.0, beside=True),
        op("join-up", "gemm", 0.0, needs=("dispatch", "shared-up")),
        op("experts", "gemm", 4.0),
        op("combine", "ep", 4.0),
        op("shared-down", "gemm", 10.0, beside=True),
        op("join-down", "gemm", 0.0, needs=("combine", "shared-down")),
    )


def test_a_leg_and_its_own_kernels_slow_each_other_down_and_nothing_else():
    """Dispatch 4 + 0.5 x 2 beside a product that is over sooner; combine 4 + 0.5 x 4, for which 10 takes 0.2 x 6 longer."""
    own = Contention(0.2, 0.5, own=True)
    found = chunk_time(sequential([beside_a_leg()] * 3), (), HostTimes(0.0), own, {})
    assert float(found.seconds) == pytest.approx(3 * (4 + 5 + 4 + 10 + 1.2))
    assert found.categories["ep"] == pytest.approx(3 * 5.0)
    everywhere = chunk_time(sequential([beside_a_leg()] * 3), (), HostTimes(0.0), replace(own, own=False), {})
    assert everywhere.seconds > found.seconds


def test_shared_experts_run_beside_both_legs(four):
    plain = four.strategy.replace(two_batch_overlap=False)
    plan = four.plan(plain.replace(overlap_shared_expert=True))
    blocks = price_blocks(plan)
    routed = next(block for name, block in blocks.items() if not isinstance(name, str) and name[0].moe)
    for ops, first, second in (
        (routed.forward, ("dispatch", "shared-up"), ("combine", "shared-down")),
        (
            routed.backward,
            ("combine-backward", "shared-down-dgrad"),
            ("dispatch-backward", "shared-activation-backward"),
        ),
    ):
        names = [priced.op.name for priced in ops]
        for leg, kernel in (first, second):
            assert ops[names.index(leg) + 1].op.beside
            assert names.index(leg) < names.index(kernel) < names.index(f"beside-{leg}-join")
    assert plan.contention("F") == Contention(
        plan.contention("OV").kernels, 0.989, plan.contention("F").gathers, own=True
    )


@pytest.mark.parametrize(
    ("changes", "kind", "kernels", "exchange"),
    [
        ({}, "F", 0.0, 0.0),
        ({"expert_waves": 4}, "F", 0.75 * 0.2, 0.75 * 0.989),
        ({"delay_wgrad": True}, "F", 0.0, 0.0),
        ({"delay_wgrad": True}, "BW", 0.1, 0.989 / 2),
        ({"delay_wgrad": True, "expert_waves": 4}, "BW", 0.75 * 0.2, 0.75 * 0.989),
        ({"two_batch_overlap": True}, "F", 0.2, 2.3),
        ({}, "OV", 0.2, 0.989),
    ],
)
def test_what_the_rowwise_exchange_and_kernels_lose(free, changes, kind, kernels, exchange):
    """A leg takes a fifth of the SMs; beside kernels it lasts nearly twice as long, beside those of two halves longer."""
    found = free.plan(problem_strategy(free, **changes)).contention(kind)
    assert (found.kernels, found.exchange) == pytest.approx((kernels, exchange))
    halves = {"grouped_gemm": 0.204, "gemm": 0.204, "attention": 0.165}
    assert found.by_category == (halves if "two_batch_overlap" in changes else {})
    alone = free.plan(problem_strategy(free, ep=1)).contention("OV")
    assert alone.nothing


def test_delayed_weight_gradients_join_the_merged_pairs(free):
    base = free.strategy.replace(transport="nccl-alltoall", overlap_ep=True)
    before, after = (estimate(free, base.replace(delay_wgrad=flag)) for flag in (False, True))
    assert after.step_time_s != before.step_time_s
    products = ("grouped_gemm", "gemm")
    spent = [sum(answer.breakdown_s[name] for name in products) for answer in (before, after)]
    assert 0 < spent[1] < 1.1 * spent[0]  # what is put off runs beside the exchange, off the longest path


@pytest.fixture(scope="module")
def four():
    """The published run on four B300 that two-batch overlap was tried on, nothing overlapped, no framework in the way."""
    problem = moesim.load("olmo-4g03").with_changes({"overlap_shared_expert": False})
    return replace(problem, software=problem.software.model_copy(update={"rules": ()}))


def test_two_batch_overlap_gains_less_than_would_be_ideal(four):
    """Printed: +1.0 % where hiding all of the exchange would give +17 %; 72.2 % of it hidden; launches +89.8 %.

    The published base runs shared experts beside the exchange. Every leg of a half has kernels of the other half beside
    it here, and what they lose to it costs most of what that gains; in the run, waits for slower ranks stick out.
    """
    published = moesim.load("olmo-4g03")
    assert published.strategy.overlap_shared_expert
    base, halves = estimate(published), estimate(four, four.strategy.replace(two_batch_overlap=True))
    ideal = base.step_time_s / (base.step_time_s - base.exposed_s["ep"])
    gain = base.step_time_s / halves.step_time_s
    assert 1 < gain < ideal - 0.05
    assert ideal < 1.17
    assert halves.breakdown_s["ep"] < 0.278 * base.breakdown_s["ep"]
    assert halves.breakdown_s["grouped_gemm"] > base.breakdown_s["grouped_gemm"]
    launched = []
    for halved in (False, True):
        plan = four.plan(four.strategy.replace(two_batch_overlap=halved))
        blocks = price_blocks(plan.half if halved else plan)
        one = next(block for name, block in blocks.items() if not isinstance(name, str))
        count = sum(float(np.sum(priced.launch)) for priced in (*one.forward, *one.backward))
        launched.append(count * (2 if halved else 1))
    assert launched[1] / launched[0] == pytest.approx(2.0)


def test_the_halves_do_the_work_of_the_whole(free):
    plan, whole = block(free)
    half = next(one for name, one in price_blocks(plan.half).items() if not isinstance(name, str))
    for direction in ("forward", "backward"):
        flops = [sum(float(op.op.work.flop) for op in getattr(one, direction)) for one in (whole, half)]
        assert flops[0] == pytest.approx(2 * flops[1], rel=1e-12)


@pytest.mark.parametrize(
    "changes",
    [{"two_batch_overlap": True}, {"expert_waves": 2}, {"delay_wgrad": True}],
    ids=lambda one: next(iter(one)),
)
@pytest.mark.parametrize("transport", ["nvshmem-rowwise", "nccl-alltoall", "deepep"])
def test_an_overlap_hides_exchange_and_stretches_kernels(four, changes, transport):
    base = four.strategy.replace(transport=transport, capacity_factor=None)
    before, after = estimate(four, base), estimate(four, base.replace(**changes))
    assert after.breakdown_s["ep"] < before.breakdown_s["ep"]
    assert after.step_time_s > before.step_time_s - before.exposed_s["ep"]
    assert after.memory.peak_bytes == pytest.approx(before.memory.peak_bytes, rel=1e-12)


def test_explained_operations_are_those_of_the_halves(four):
    whole, halves = (
        explain(replace(four, strategy=four.strategy.replace(two_batch_overlap=flag))).ops for flag in (False, True)
    )
    one, other = ({row.name: row for row in rows if row.where == "moe fwd"} for rows in (whole, halves))
    assert other["dispatch"].message_bytes == one["dispatch"].message_bytes / 2
    assert other["dispatch"].calls == 2 * one["dispatch"].calls


def test_a_split_backward_overlaps_its_first_part(free):
    base = free.strategy.replace(
        tp=1, sequence_parallel=False, pp=4, schedule="zb-h1", micro_batch=4, transport="nccl-alltoall"
    )
    before, after = (estimate(free, base.replace(two_batch_overlap=flag)) for flag in (False, True))
    assert after.exposed_s["ep"] < before.exposed_s["ep"]


def test_a_batch_agrees_with_single_estimates(free):
    base = problem_strategy(free, two_batch_overlap=True)
    strategies = [base.replace(ep=ep) for ep in (2, 4, 8)]
    together = evaluate(free, strategies)
    alone = [estimate(free, strategy).step_time_s for strategy in strategies]
    assert together.step_time_s.tolist() == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"expert_waves": 2, "ep": 1}, "overlap-of-an-exchange"),
        ({"two_batch_overlap": True, "ep": 1}, "overlap-of-an-exchange"),
        ({"expert_waves": 2, "two_batch_overlap": True}, "one-use-of-the-exchange"),
        ({"expert_waves": 0}, "whole-waves"),
        ({"two_batch_overlap": True, "micro_batch": 1}, "two-halves"),
        ({"two_batch_overlap": True, "recompute": ("full",)}, "two-batches-recompute"),
        ({"two_batch_overlap": True, "dp_sharding": "fsdp"}, "two-batches-sharding"),
        ({"delay_wgrad": True, "two_batch_overlap": True}, "delayed-wgrad"),
        ({"delay_wgrad": True, "pp": 4, "schedule": "zb-h1"}, "delayed-wgrad"),
    ],
)
def test_what_is_refused(free, changes, rule):
    assert rule in {broken.violation.rule for broken in free.check(problem_strategy(free, **changes))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"two_batch_overlap": True}, False),
        ({"expert_waves": 2}, False),
        ({"transport": "nccl-alltoall", "capacity_factor": None}, False),
        ({"ep": 1}, False),
    ],
)
def test_olmo_core_runs_shared_experts_beside_rows_that_its_kernels_write(changes, expected):
    assert moesim.load("olmo-4g03").with_changes(changes).strategy.overlap_shared_expert is expected
