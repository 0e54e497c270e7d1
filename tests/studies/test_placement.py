"""Orders of the axes on the ranks."""

import json

import numpy as np
import pytest

from moesim.fabric.layout import Layout
from moesim.studies.fabric_groups import axis_traffic, fabric_groups
from moesim.studies.placement import axis_members, placements


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
        strides = [np.prod([mesh.size(axis) for axis in axes]) for axes in inner]
        assert strides[0] == strides[1]


@pytest.mark.parametrize(
    "fabric", ["rail-ndr400", "rail-only", "fat-tree:3", "torus2d", "torus3d", "ring", "dragonfly"]
)
def test_the_best_is_never_worse_than_the_usual(small, fabric):
    answer = placements(small.with_changes({"cluster.fabric": fabric}))
    totals = [one.total for one in answer.ranked]
    assert totals == sorted(totals)
    assert answer.best.total <= answer.usual.total
    assert 0 < answer.best.total < float("inf")


def test_the_usual_order_costs_what_its_groups_say(small):
    usual = placements(small).usual
    for row in fabric_groups(small).rows:
        assert usual.seconds[row.axis] == pytest.approx(row.seconds)


def test_experts_are_best_inside_a_node(qwen):
    """EP8 on nodes of eight: strided experts send most of their rows over the NICs."""
    answer = placements(qwen.with_changes({"ep": 8}))
    assert answer.best.expert[0] == "ep"
    strided = min((one for one in answer.ranked if one.expert[0] != "ep"), key=lambda one: one.seconds["ep"])
    assert strided.seconds["ep"] > 3 * answer.best.seconds["ep"]


def test_an_expert_group_that_leaves_the_domain_is_several_times_slower(qwen):
    inside, across = (placements(qwen.with_changes({"ep": ep})).usual.seconds["ep"] for ep in (8, 32))
    assert 4 < across / inside < 8


def test_groups_over_several_axes():
    assert axis_members(24, ((3, 4),)).tolist() == Layout(24, 3, 4).members().tolist()
    spread = axis_members(24, ((2, 1), (3, 8)))
    assert spread[1].tolist() == [2, 3, 10, 11, 18, 19]
    assert sorted(spread.ravel().tolist()) == list(range(24))


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
