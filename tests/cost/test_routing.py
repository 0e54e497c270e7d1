"""Uneven routing in an estimate: the hottest rank stretches time and memory, a capacity cuts, copies relieve."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import moesim
from moesim.cost.blocks import price_blocks
from moesim.cost.grouped import grouped_gemm_time
from moesim.cost.machine import Group
from moesim.cost.price import op_time
from moesim.cost.transports import leg_time, reached_domains, reached_ranks, transports
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.workload.mesh import Mesh
from moesim.workload.ops import ExpertLeg, Gemm, Op

ZIPF = "zipf:0.8"


@pytest.fixture(scope="module")
def answer(free):
    def of(routing="balanced", **changes):
        return estimate(free, free.strategy.replace(routing=routing, **changes))

    return of


def test_an_exponent_of_zero_is_balanced(answer):
    even, flat = answer(), answer("zipf:0")
    assert flat.step_time_s == pytest.approx(even.step_time_s, rel=1e-12)
    assert flat.memory.peak_bytes == pytest.approx(even.memory.peak_bytes, rel=1e-12)


@pytest.mark.parametrize("transport", transports.names())
def test_the_step_and_the_peak_grow_with_the_hottest_rank(answer, transport):
    found = [answer(f"zipf:{exponent}", transport=transport) for exponent in (0, 0.4, 0.8, 1.2)]
    for less, more in pairwise(found):
        assert more.routing["hottest_rank_load"] > less.routing["hottest_rank_load"]
        assert more.step_time_s > less.step_time_s
        assert more.memory.peak_bytes > less.memory.peak_bytes
        for part in ("grouped_gemm", "ep"):
            assert more.breakdown_s[part] > less.breakdown_s[part]


def test_rows_kept_in_memory_are_those_of_the_hottest_rank(free):
    kept = {}
    for routing in ("balanced", ZIPF):
        plan = free.plan(free.strategy.replace(routing=routing))
        block = next(block for name, block in price_blocks(plan).items() if not isinstance(name, str))
        kept[routing] = {saved.name: saved.num_bytes for saved in block.block.saved}
    load = plan.skew.load
    for name in ("dispatched-rows", "expert-up-output", "expert-activation-output", "row-probs"):
        assert kept[ZIPF][name] == pytest.approx(load * kept["balanced"][name])
    assert kept[ZIPF]["expert-input"] == kept["balanced"]["expert-input"]


def test_a_capacity_cuts_time_and_memory_and_says_what_it_drops(answer):
    free_of, cut, tight = (answer(ZIPF, capacity_factor=factor) for factor in (None, 1.25, 1.0))
    assert free_of.routing["dropped_share"] == 0
    assert 0 < cut.routing["dropped_share"] < tight.routing["dropped_share"] < 1
    assert cut.routing["hottest_rank_load"] == 1.25
    assert tight.step_time_s < cut.step_time_s < free_of.step_time_s
    assert tight.memory.peak_bytes < cut.memory.peak_bytes < free_of.memory.peak_bytes
    each = answer(ZIPF, capacity_factor=1.25, capacity_per="expert")
    assert each.routing["dropped_share"] > cut.routing["dropped_share"]


def test_what_is_dropped_is_told_where_it_is_known(answer):
    assert answer("balanced", capacity_factor=0.8).routing == {
        "hottest_rank_load": 0.8,
        "dropped_share": pytest.approx(0.2),
    }
    assert answer("natural", rank_imbalance=1.5, capacity_factor=1.2).routing["dropped_share"] is None
    assert answer("natural", rank_imbalance=1.5).routing == {"hottest_rank_load": 1.5, "dropped_share": 0.0}


def test_experts_of_different_sizes_pay_for_their_tiles(machine, gpu):
    sizes = np.array([96.0, 33.0, 33.0, 30.0])
    work = Gemm(48.0, 2048, 2048, 4, spread=sizes / 48)
    uneven, even = (Op("up", "grouped_gemm", one) for one in (work, replace(work, spread=np.ones(4))))
    plain = grouped_gemm_time(Gemm(48.0, 2048, 2048, 4), gpu)

    mesh, transport = Mesh(1, 1, 1, 1, 1, 1), transports.get("deepep")
    assert op_time(even, mesh, machine, transport) == pytest.approx(plain, rel=1e-12)
    assert op_time(uneven, mesh, machine, transport) >= plain


def test_copies_of_hot_experts_trade_rows_for_weights(answer, free):
    alone, copied = (answer("zipf:1.2", replicated_experts=count) for count in (0, 2))
    assert copied.routing["hottest_rank_load"] < alone.routing["hottest_rank_load"]
    assert copied.breakdown_s["grouped_gemm"] < alone.breakdown_s["grouped_gemm"]
    plan = free.plan(free.strategy.replace(routing="zipf:1.2", replicated_experts=2))
    blocks = price_blocks(plan)
    layer = next(block for name, block in blocks.items() if not isinstance(name, str))
    moved = {
        priced.op.name: priced.op.work.size
        for priced in (*layer.forward, *layer.backward)
        if "hot-experts" in priced.op.name
    }
    params = 3 * 2048 * 768  # gated, of one expert
    assert moved == {
        "gather-hot-experts": 2 * 2 * params,
        "gather-hot-experts-again": 2 * 2 * params,
        "reduce-hot-experts": 4 * 2 * params,
    }
    held = copied.memory.stages[0]["unsharded_bytes"] - alone.memory.stages[0]["unsharded_bytes"]
    assert held == pytest.approx(2 * params * (2 + 4))


def leg(limit: int | None = None) -> ExpertLeg:
    """4,096 tokens to 8 of 256 experts, rows of 14 KiB."""
    return ExpertLeg("dispatch", 4096.0, 8, 256, 14336.0, node_limit=limit)


EIGHT_NODES = Group(64.0, 8.0)


def test_a_limit_of_nodes_by_hand():
    """Four of eight nodes: 8 of 128 experts, 32 a node."""
    free_leg, limited = leg(), leg(4)
    missed = np.prod([(96 - i) / (128 - i) for i in range(8)])
    assert reached_domains(limited, EIGHT_NODES) == pytest.approx(4 * (1 - missed))
    missed = np.prod([(124 - i) / (128 - i) for i in range(8)])
    assert reached_ranks(limited, EIGHT_NODES) == pytest.approx(32 * (1 - missed))
    assert reached_domains(free_leg, EIGHT_NODES) > 5
    for enough in (8, 9):
        assert reached_domains(leg(enough), EIGHT_NODES) == reached_domains(free_leg, EIGHT_NODES)


@pytest.mark.parametrize("name", transports.names())
def test_fewer_nodes_are_never_slower_and_help_who_sends_a_token_once(machine, name):
    times = [float(leg_time(transports.get(name), leg(limit), EIGHT_NODES, machine)) for limit in (1, 2, 4, 8, None)]
    assert times == sorted(times)
    assert times[-2] == pytest.approx(times[-1], rel=1e-12)
    once = name in ("deepep", "deepep-nvshmem", "deepep-v2", "hybridep", "uccl")
    assert (times[0] < 0.8 * times[-1]) == once


def test_a_batch_agrees_with_single_estimates(free):
    base = free.strategy.replace(routing=ZIPF, capacity_factor=1.6, replicated_experts=1)
    strategies = [base.replace(ep=ep) for ep in (2, 4, 8, 16)]
    together = evaluate(free, strategies)
    assert together.legal.all()
    for index, strategy in enumerate(strategies):
        alone = estimate(free, strategy)
        assert together.step_time_s[index] == pytest.approx(alone.step_time_s, rel=1e-12)
        assert together.peak_bytes[index] == pytest.approx(alone.memory.peak_bytes, rel=1e-12)


def test_a_histogram_comes_from_a_file_or_a_list(small_file, small):
    rows = [3] * 8 + [1] * 24
    (small_file.parent / "rows.csv").write_text("\n".join(map(str, rows)))
    text = small_file.read_text().replace("micro_batch: 1}", "micro_batch: 1, routing: 'histogram:rows.csv'}")
    (small_file.parent / "measured.yaml").write_text(text)
    read = moesim.load(small_file.parent / "measured.yaml")
    assert read.strategy.routing == "histogram:" + ",".join(map(str, rows))
    assert small.with_changes({"routing": rows}).strategy.routing == read.strategy.routing
    # ep 8: four experts of 3 on each of two ranks, the mean is 1.5
    assert estimate(read).routing == {"hottest_rank_load": pytest.approx(2.0), "dropped_share": 0.0}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"routing": "zipf:x"}, "routing-argument"),
        ({"routing": "histogram:1,2,3"}, "routing-argument"),
        ({"routing": ZIPF, "rank_imbalance": 1.2}, "routing-or-imbalance"),
        ({"capacity_per": "expert", "capacity_factor": 1.2}, "capacity-per-expert"),
        ({"capacity_per": "expert", "routing": ZIPF}, "capacity-per-expert"),
        ({"capacity_per": "token"}, "known-capacity_per"),
        ({"replicated_experts": 2}, "replicated-experts"),
        ({"replicated_experts": 32, "routing": ZIPF}, "replicated-experts"),
        ({"replicated_experts": 2, "routing": ZIPF, "ep": 1}, "replicated-experts"),
        ({"node_limit": 0}, "node-limit"),
    ],
)
def test_what_is_refused(small, changes, rule):
    assert rule in {broken.violation.rule for broken in small.check(small.strategy.replace(**changes))}


def test_a_model_without_experts_has_no_law_and_no_limit(variants):
    dense = variants["dense"]
    found = {broken.violation.rule for broken in dense.check(dense.strategy.replace(routing=ZIPF, node_limit=2))}
    assert found >= {"routing-of-experts", "node-limit"}
    assert estimate(dense).routing is None


def test_a_limit_must_leave_enough_experts(qwen):
    # 128 experts over 32 ranks on 4 nodes: one node has 32 of them, top 8
    assert not qwen.check(qwen.strategy.replace(node_limit=1))
    few = replace(
        qwen,
        model=replace(
            qwen.model,
            layers=tuple(
                replace(layer, feed_forward=replace(layer.feed_forward, top_k=40)) for layer in qwen.model.layers
            ),
        ),
    )
    rules = {broken.violation.rule for broken in few.check(few.strategy.replace(node_limit=1))}
    assert "experts-within-the-node-limit" in rules


def test_a_missing_file_is_one_line(small_file):
    text = small_file.read_text().replace("micro_batch: 1}", "micro_batch: 1, routing: 'histogram:none.csv'}")
    (small_file.parent / "missing.yaml").write_text(text)
    with pytest.raises(moesim.SpecError, match=r"missing.yaml:\d+: strategy.routing: 'none.csv' cannot be read"):
        moesim.load(small_file.parent / "missing.yaml")
