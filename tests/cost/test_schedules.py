"""What split backwards, V placement and two copies of the parameters do to a whole step."""

import numpy as np
import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.collectives import collective_time
from moesim.cost.machine import Group
from moesim.cost.memory import rank_memory
from moesim.cost.pipeline import boundary_time, step_times
from moesim.cost.replication import gradient_reduction_time
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.timeline.run import run
from moesim.timeline.schedules import schedules

SHAPE = {"pp": 4, "tp": 1, "ep": 8, "overlap_p2p": True}
NAMES = [name for name in schedules.names() if name != "none"]


def strategy(problem, name, **changes):
    return problem.strategy.replace(**SHAPE | {"schedule": name, "vpp": schedules.get(name).chunks or 2} | changes)


def priced(problem, name, **changes):
    plan = problem.plan(strategy(problem, name, **changes))
    blocks = price_blocks(plan)
    return plan, step_times(plan, blocks), rank_memory(plan, blocks)


def row(times, kind, where):
    return float(times.durations[times.graph.rows[kind, where]])


@pytest.mark.parametrize("name", NAMES)
def test_an_estimate_of_each_schedule_adds_up_and_is_a_column_of_a_batch(free, name):
    chosen = strategy(free, name)
    answer = estimate(free, chosen)
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9)
    batch = evaluate(free, [chosen, chosen.replace(ep=16), chosen.replace(ep=4)])
    assert batch.step_time_s[0] == pytest.approx(answer.step_time_s, rel=1e-12)
    assert batch.peak_bytes[0] == pytest.approx(answer.memory.peak_bytes, rel=1e-12)
    assert (batch.step_time_s > 0).all()
    assert len(answer.memory.stages) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_of_a_schedule_holds_for_its_step(free, name):
    plan, times, _ = priced(free, name, overlap_p2p=False)
    whole = run(times.graph.graph, times.durations, times.delays).makespan
    forward = np.array([row(times, "F", q) for q in range(times.graph.num_stages)])
    backward = []
    for q in range(times.graph.num_stages):
        parts = [row(times, kind, q) for kind in ("B", "W") if (kind, q) in times.graph.rows]
        found = [sum(parts)] if parts else []
        found += [row(times, "BW", q)] if ("BW", q) in times.graph.rows else []
        backward.append(min(found))
    bound = schedules.get(name).lower_bound(4, plan.num_micro_batches, plan.strategy.vpp, forward, np.array(backward))
    assert 0.4 * whole < bound <= whole


def test_both_parts_of_a_backward_take_about_as_long_as_the_whole(free):
    _, whole, _ = priced(free, "1f1b")
    _, split, _ = priced(free, "zb-h1")
    for q in range(4):
        parts = row(split, "B", q) + row(split, "W", q)
        assert row(split, "W", q) < row(split, "B", q)  # attention and exchange stay in B
        assert row(whole, "BW", q) <= parts * (1 + 1e-12)  # what ran beside the other part now runs alone
        assert parts < 1.15 * row(whole, "BW", q)
        assert row(whole, "F", q) == row(split, "F", q)


def test_a_part_sends_its_gradient_and_a_weight_gradient_sends_nothing(free):
    plan, blocking, _ = priced(free, "zb-h1", overlap_p2p=False)
    _, beside, _ = priced(free, "zb-h1")
    send = boundary_time(plan, 0)
    assert row(blocking, "B", 1) - row(beside, "B", 1) == pytest.approx(send)
    assert row(blocking, "B", 0) == row(beside, "B", 0)
    assert all(row(blocking, "W", q) == row(beside, "W", q) for q in range(4))


def test_nothing_is_sent_where_a_v_turns(free):
    plan, times, _ = priced(free, "zb-v")
    assert [float(boundary_time(plan, q)) > 0 for q in range(7)] == [True, True, True, False, True, True, True]
    assert times.delays[4] == 0
    assert (times.delays[[1, 2, 3, 5, 6, 7]] > 0).all()


def test_the_ends_of_the_model_are_on_the_first_rank_of_a_v(free):
    plan, _, memory = priced(free, "zb-v")
    first = plan.params[0].total + plan.params[7].total
    assert plan.stages[0].embedding
    assert plan.stages[7].loss
    assert memory[0].classes["weights"] == pytest.approx(2 * float(first))
    assert ["loss" in rank.phases for rank in memory] == [True, False, False, False]


def test_zero_bubbles_hold_the_operands_of_waiting_weight_gradients(free):
    _, _, plain = priced(free, "1f1b")
    _, _, h1 = priced(free, "zb-h1")
    _, _, h2 = priced(free, "zb-h2")
    kept = [[float(rank.classes["activations"]) for rank in each] for each in (plain, h1, h2)]
    assert kept[0][0] <= kept[1][0]  # the first rank of ZB-H1 keeps as many micro-batches as that of 1F1B
    assert all(one < other for one, other in zip(kept[0][1:], kept[1][1:], strict=True))
    assert all(one < other for one, other in zip(kept[1], kept[2], strict=True))
    assert kept[1][3] > kept[1][1]  # the operands of the LM head are the largest


def test_controllable_memory_is_a_half_and_a_third(free):
    kept = {
        name: max(float(rank.classes["activations"]) for rank in priced(free, name)[2][1:])
        for name in ("zb-v", "v-half", "v-min")
    }
    assert kept["v-half"] < 0.85 * kept["zb-v"]
    assert kept["v-min"] < 0.7 * kept["v-half"] + 0.1 * kept["zb-v"]


def test_two_copies_of_the_parameters_share_their_optimizer(free):
    one, _, plain = priced(free, "1f1b")
    two, _, both = priced(free, "dualpipe")
    assert len(two.stages) == 2 * len(one.stages)
    assert two.params[:4] == two.params[4:] == one.params
    for rank in range(4):
        held = [rank, 3 - rank]
        for name in ("weights", "gradients"):
            expected = sum(float(plain[other].classes[name]) for other in held)
            assert both[rank].classes[name] == pytest.approx(expected, rel=1e-12)
        shards = sum(float(plain[other].classes["optimizer"]) for other in held) / 2
        assert both[rank].classes["optimizer"] == pytest.approx(shards, rel=1e-12)
    links, params = two.machine.links, two.params[0]
    dense, routed = (two.machine.group(two.mesh, axis) for axis in ("dense-shard", "routed-shard"))
    assert gradient_reduction_time(two, params) == pytest.approx(
        sum(
            collective_time("reduce-scatter", 4 * count, Group(2 * group.size, group.per_node), links)
            for count, group in ((params.dense, dense), (params.routed, routed))
        )
    )


def test_merged_pairs_of_dualpipe_take_less_than_their_halves(free):
    """Where the exchange runs over NVLink; two exchanges that fill the NIC alone have nothing to hide behind."""
    changes = {"ep": 8, "overlap_p2p": False}
    apart, merged = (estimate(free, strategy(free, "dualpipe", overlap_ep=flag, **changes)) for flag in (False, True))
    assert merged.step_time_s < apart.step_time_s
    assert {kind for kind, _ in merged.timeline.graph.rows} >= {"OV", "BW", "B", "W"}


def test_overlapped_reductions_begin_behind_the_last_weight_gradient(free):
    _, times, _ = priced(free, "zb-h1", overlap_grad_reduce=True)
    result = run(times.graph.graph, times.durations, times.delays)
    graph = times.graph.graph
    for q in range(4):
        last = max(result.end[task] for task, key in enumerate(graph.keys) if key[0] == "W" and key[1] == q)
        assert result.start[graph.index(("reduce", q))] >= last


@pytest.mark.parametrize(
    ("name", "changes", "rule"),
    [
        ("dualpipe", {"dp_sharding": "fsdp", "overlap_param_gather": False}, "copies-of-parameters"),
        ("dualpipe", {"dp_sharding": "zero2", "overlap_param_gather": False}, "copies-of-parameters"),
        ("zb-v", {"overlap_ep": True}, "overlap-ep-pairs"),
        ("gpipe", {"overlap_ep": True}, "overlap-ep-pairs"),
        ("dualpipe", {"dp_sharding": "ddp", "overlap_param_gather": False}, ""),
    ],
)
def test_what_does_not_go_together_is_refused(free, name, changes, rule):
    found = [broken.violation.rule for broken in free.check(strategy(free, name, **changes))]
    assert found == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("software", "offered"),
    [
        ("megatron-core", {"1f1b", "interleaved-1f1b"}),
        ("torchtitan", {"gpipe", "1f1b", "interleaved-1f1b", "zb-v", "dualpipev"}),
        ("olmo-core", {"1f1b", "interleaved-1f1b", "1f1b-v", "1f1b-v-ahead"}),
        ("nanotron", {"1f1b", "gpipe"}),
        ("xtuner", set()),
    ],
)
def test_what_each_framework_offers_stands_in_its_spec(small, software, offered):
    problem = small.with_changes({"software": software})
    rule = f"{software}: schedules"
    found = {
        name
        for name in NAMES
        if rule not in {broken.violation.rule for broken in problem.check(strategy(problem, name, overlap_p2p=False))}
    }
    assert found == offered


def test_a_file_is_a_schedule_of_a_strategy(small, tmp_path):
    path = tmp_path / "slots.csv"
    path.write_text("0F0,0F1,,,0B0,,0B1,\n,1F0,1B0,,1F1,1B1\n")
    changes = {"software": "torchtitan", "pp": 2, "tp": 1, "schedule": str(path), "global_batch": 64, "ep": 8}
    problem = small.with_changes(changes)
    named = small.with_changes(changes | {"schedule": "1f1b"})
    assert estimate(problem).step_time_s == pytest.approx(estimate(named).step_time_s, rel=1e-12)
    with pytest.raises(SpecError, match="has 2 micro-batches, not 4"):
        estimate(problem.with_changes({"global_batch": 128}))
    (broken,) = small.with_changes(changes | {"software": "megatron-core"}).check()
    assert broken.violation.rule == "megatron-core: schedules"


def test_a_file_in_a_scenario_is_relative_to_its_folder(small_file, tmp_path):
    text = small_file.read_text().replace(
        "strategy: {tp: 2, pp: 4, ep: 8, ", "strategy: {pp: 2, ep: 8, schedule: slots.csv, "
    )
    text = text.replace("global_batch: 128", "global_batch: 64\nsoftware: torchtitan").replace(
        "model: small-moe.yaml", f"model: {small_file.parent / 'small-moe.yaml'}"
    )
    (tmp_path / "s.yaml").write_text(text)
    (tmp_path / "slots.csv").write_text("0F0,0F1,,,0B0,,0B1,\n,1F0,1B0,,1F1,1B1\n")
    problem = moesim.load(tmp_path / "s.yaml")
    assert problem.strategy.schedule == str(tmp_path / "slots.csv")
    assert estimate(problem).timeline.graph.num_ranks == 2
    (tmp_path / "slots.csv").write_text("0F0,0F1,,,0B0,,0B1,\n,1F0,1B0,,1F1\n")
    with pytest.raises(SpecError, match=r"slots\.csv:2: the backward of stage 1, micro-batch 1 is missing; write 1B1"):
        moesim.load(tmp_path / "s.yaml")
