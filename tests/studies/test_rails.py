"""PXN: what crosses rails, what that costs, and where it cannot be left out."""

import pytest

from moesim.base.errors import SpecError
from moesim.studies.rails import railed
from moesim.studies.scaling_beside import scaled_beside

SIZE = 2.0**30


def test_with_pxn_nothing_leaves_its_rail():
    on, off = railed("all-to-all", SIZE, "hgx-h100:32", "rail-ndr400:2", [True, False])
    assert (on.crosses_rails, off.crosses_rails) == (False, True)
    across = SIZE * (1 - 8 / 256)  # of every rank to the GPUs of the other nodes
    assert on.tier_bytes["leaf"] == pytest.approx(across)
    assert on.tier_bytes["nvlink"] == pytest.approx(SIZE * (1 - 1 / 8))  # seven of eight go to another rail first
    assert off.tier_bytes["spine"] == pytest.approx(across * 7 / 8)
    assert on.price
    assert off.price
    assert 1.2 < off.price.time / on.price.time < 2.1


def test_a_rail_of_several_leaves_is_no_other_rail():
    on, off = railed("all-to-all", SIZE, "hgx-h100:64", "rail-ndr400:2", [True, False])
    assert on.tier_bytes["spine"] > 0
    assert (on.crosses_rails, off.crosses_rails) == (False, True)


def test_a_full_spine_costs_no_bandwidth():
    on, off = railed("all-to-all", SIZE, "hgx-h100:32", "rail-ndr400", [True, False])
    assert on.price
    assert off.price
    assert off.price.time == pytest.approx(on.price.time, rel=0.05)


def test_rails_alone_need_pxn():
    on, off = railed("all-to-all", SIZE, "hgx-h100:32", "rail-only", [True, False])
    assert on.price is not None
    assert off.price is None
    assert "reaches its own rail alone" in off.to_dict()["refused"]


def test_a_fabric_without_rails_has_no_pxn():
    with pytest.raises(SpecError, match="without rails"):
        railed("all-to-all", SIZE, "hgx-h100:32", "fat-tree", [True])


def test_ways_to_scale_beside_each_other(small):
    changes = [{"dp_sharding": "fsdp"}, {"precision": "fp8-current"}, {"pp": "3"}]
    found = scaled_beside(small, [4, 8], others=changes)
    assert [point.to_dict() for point in found.ways[0].points] == found.to_dict()["points"]
    for way, told in zip(found.ways[1:3], found.to_dict()["beside"], strict=False):
        for gain, mine, base in zip(told["gains"], way.points, found.ways[0].points, strict=True):
            assert mine.answer
            assert base.answer
            assert gain["speedup"] == pytest.approx(base.answer.step_time_s / mine.answer.step_time_s)
            assert 0 < gain["share_outside_products"] < 1
        changed = [gain["speedup"] > 1 for gain in told["gains"]]
        assert told["crossover_nodes"] == ([8] if changed[0] != changed[1] else [])
    assert found.ways[3].refused or all(point.answer is None for point in found.ways[3].points)
    assert found.to_dict()["beside"][2]["verdict"] == "pp=3: nothing to compare"


def test_a_verdict_says_where_a_way_does_not_fit(small):
    tight = small.with_changes({"gpu.memory_capacity": "2 GB", "strategy.pp": 2})
    told = scaled_beside(tight, [4, 8], others=[{"dp_sharding": "ddp"}]).to_dict()["beside"][0]
    assert [gain["fits"] for gain in told["gains"]] == [False, False]
    assert told["verdict"].endswith("does not fit on 4, 8 nodes")
    roomy = small.with_changes({"gpu.memory_capacity": "80 GB", "strategy.pp": 2})
    assert "fit" not in scaled_beside(roomy, [4], others=[{"dp_sharding": "ddp"}]).to_dict()["beside"][0]["verdict"]
