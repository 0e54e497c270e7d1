"""Orders of the axes on the ranks."""

import json

import numpy as np
import pytest

from moesim.estimator import estimate
from moesim.fabric.layout import Layout
from moesim.studies.fabric_groups import axis_traffic, fabric_groups
from moesim.studies.placed_groups import axis_members, neighbours, ranks, step_times_of
from moesim.studies.placement import legal_orders, placements
from moesim.studies.step_factors import at_factors


@pytest.fixture(scope="module")
def found(small):
    return placements(small.with_changes({"cp": 2, "etp": 2, "ep": 4}))


def test_every_order_once(found):
    pairs = [(one.attention, one.expert) for one in found.ranked]
    assert len(pairs) == len(set(pairs))
    assert found.usual in found.ranked
    assert found.usual.attention == ("tp", "cp", "dp", "pp")
    assert found.usual.expert == ("etp", "ep", "edp", "pp")


def test_both_meshes_put_the_same_ranks_into_a_stage(found, small):
    mesh = small.with_changes({"cp": 2, "etp": 2, "ep": 4}).plan().mesh
    for one in found.ranked:
        inner = [order[: order.index("pp")] for order in (one.attention, one.expert)]
        strides = [np.prod([ranks(axis, mesh) for axis in axes]) for axes in inner]
        assert strides[0] == strides[1]


@pytest.mark.parametrize(
    "fabric", ["rail-ndr400", "rail-only", "fat-tree:3", "torus2d", "torus3d", "ring", "dragonfly"]
)
def test_the_best_is_never_worse_than_the_usual(small, fabric):
    answer = placements(small.with_changes({"cluster.fabric": fabric}))
    steps = [one.step_s for one in answer.ranked]
    assert steps == pytest.approx(sorted(steps), rel=1e-8)
    assert answer.best.step_s <= answer.usual.step_s * (1 + 1e-8)
    assert 0 < answer.best.step_s < float("inf")


def test_the_usual_order_costs_what_its_groups_say(small):
    usual = placements(small).usual
    for row in fabric_groups(small).rows:
        assert usual.seconds[row.axis] == pytest.approx(row.seconds)


@pytest.mark.parametrize("fabric", ["rail-ndr400", "fat-tree:3", "torus2d"])
@pytest.mark.parametrize("changes", [{}, {"cp": 2, "etp": 2, "ep": 4}], ids=["plain", "cp-etp"])
def test_the_usual_order_gives_the_step_of_an_estimate(small, fabric, changes):
    problem = small.with_changes(changes | {"cluster.fabric": fabric})
    assert placements(problem).usual.step_s == pytest.approx(estimate(problem).step_time_s, rel=1e-12)


def test_all_orders_together_are_each_alone(small):
    problem = small.with_changes({"cluster.fabric": "fat-tree:3"})
    plan = problem.plan()
    orders = legal_orders(plan.mesh)
    together = step_times_of(plan, orders)
    assert len(set(together.tolist())) > 1
    for pair, step in zip(orders, together.tolist(), strict=True):
        assert step_times_of(plan, [pair])[0] == pytest.approx(step, rel=1e-12)


def test_experts_are_best_inside_a_node(qwen):
    """EP8 on nodes of eight: strided experts send most of their rows over the NICs."""
    answer = placements(at_factors(qwen.with_changes({"ep": 8}), {}))
    assert answer.best.expert[0].startswith("ep")
    assert answer.best.experts_per_domain == 8
    strided = min((one for one in answer.ranked if one.expert[0] == "edp"), key=lambda one: one.seconds["ep"])
    assert strided.step_s > 1.1 * answer.best.step_s
    limited = min((one for one in answer.ranked if one.expert[:2] == ("ep.4", "edp")), key=lambda one: one.step_s)
    assert [one.experts_per_domain for one in (answer.best, limited, strided)] == [8, 4, 2]
    assert answer.best.step_s < limited.step_s < strided.step_s
    assert strided.seconds["ep"] > 3 * answer.best.seconds["ep"]


def test_an_expert_group_that_leaves_the_domain_is_several_times_slower(qwen):
    inside, across = (placements(qwen.with_changes({"ep": ep})).usual.seconds["ep"] for ep in (8, 32))
    assert 4 < across / inside < 8


def test_expert_groups_are_split_where_something_comes_between(qwen):
    plan = qwen.with_changes({"ep": 8}).plan()
    split = [expert for _, expert in legal_orders(plan.mesh) if any("." in axis for axis in expert)]
    assert {tuple(axis for axis in expert if "." in axis) for expert in split} == {("ep.2", "ep.x4"), ("ep.4", "ep.x2")}
    for expert in split:
        inner, outer = (place for place, axis in enumerate(expert) if "." in axis)
        assert outer > inner + 1
    assert (ranks("ep", plan.mesh), ranks("ep.2", plan.mesh), ranks("ep.x4", plan.mesh)) == (8, 2, 4)


def test_groups_over_several_axes():
    assert axis_members(24, ((3, 4),)).tolist() == Layout(24, 3, 4).members().tolist()
    spread = axis_members(24, ((2, 1), (3, 8)))
    assert spread[1].tolist() == [2, 3, 10, 11, 18, 19]
    assert sorted(spread.ravel().tolist()) == list(range(24))


def test_neighbours_in_a_domain():
    members = axis_members(64, ((4, 1), (4, 16)))
    assert [neighbours(members, domain) for domain in (8, 16, 64)] == [4, 4, 16]
    assert neighbours(axis_members(64, ((8, 8),)), 8) == 1


def test_groups_of_split_state_cover_all_ranks(small):
    hybrid = small.with_changes({"dp_sharding": "hsdp", "pp": 1, "schedule": "none", "ep": 4, "tp": 1})
    axes = {one.axis for one in axis_traffic(hybrid.plan())}
    assert {"dense-shard", "dense-replica"} <= axes
    usual = placements(hybrid).usual
    for row in fabric_groups(hybrid).rows:
        assert usual.seconds[row.axis] >= row.seconds * (1 - 1e-9)


def test_plain_data(found):
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["orders"] == len(data["ranked"])
    assert data["saved_s"] >= 0
