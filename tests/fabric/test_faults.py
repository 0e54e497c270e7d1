"""What groups get once a part is gone or slow."""

import pytest

from moesim.base.errors import SpecError
from moesim.fabric import measures, routes
from moesim.fabric.builders import builders
from moesim.fabric.faults import group_rates, with_degraded, with_fault
from moesim.fabric.layout import PATTERNS, Layout
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import group_bandwidth

SHAPE = Shape(64, 8, 8, radix=16)


def graph(kind, shape=SHAPE):
    return builders.get(kind).graph(shape)


def rates(topology, size, stride, pattern="all-to-all"):
    return group_rates(topology, Layout(topology.fabric.world, size, stride), pattern).rates


@pytest.mark.parametrize("kind", ["fat-tree", "rail", "rail-only", "torus"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_without_a_fault_all_groups_get_what_the_tiers_say(kind, pattern):
    topology = graph(kind)
    for size, stride in ((8, 1), (8, 8), (64, 1)):
        found = group_rates(topology, Layout(64, size, stride), pattern)
        assert min(found.rates) == pytest.approx(group_bandwidth(topology.fabric, size, stride, pattern).bandwidth)


def test_a_lost_nic_slows_the_groups_that_used_it():
    """Rail 5 loses one NIC of 8: its traffic takes the other seven, which carry 8/7 of theirs."""
    broken = with_fault(graph("rail-only"), "nic:node3.rail5", 8)
    assert rates(broken, 8, 8) == pytest.approx([50e9 * 7 / 8] * 8)


@pytest.mark.parametrize("fault", ["rail:5", "switch:leaf5"])
def test_a_lost_rail_is_carried_by_the_others(fault):
    """Its leaf is the only one of the rail, so both come to the same."""
    broken = with_fault(graph("rail-only"), fault, 8)
    assert rates(broken, 8, 8) == pytest.approx([50e9 * 7 / 8] * 8)


def test_a_lost_spine_takes_its_share():
    whole, broken = graph("fat-tree"), with_fault(graph("fat-tree"), "switch:spine0.3", 8)
    assert rates(whole, 8, 8) == pytest.approx([50e9] * 8)
    assert rates(broken, 8, 8) == pytest.approx([50e9 * 7 / 8] * 8)


def test_a_cut_ring_is_a_line():
    """Its middle link carries 4 x 4 pairs instead of 8; a ring collective goes back over links that were idle."""
    ring = graph("ring")
    line = with_fault(ring, "link:node0-node1", 8)
    assert rates(line, 8, 8) == pytest.approx([rate / 2 for rate in rates(ring, 8, 8)])
    assert rates(line, 8, 8, "ring") == pytest.approx(rates(ring, 8, 8, "ring"))


def test_a_lost_node_stops_its_groups_and_no_others():
    found = group_rates(with_fault(graph("rail"), "node:3", 8), Layout(64, 16, 1), "ring")
    assert found.suffering == (1,)
    assert found.rates[1] == 0


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
@pytest.mark.parametrize(
    ("kind", "tier"), [("fat-tree", "spine"), ("rail", "leaf"), ("torus", "torus"), ("rail", "nvlink")]
)
def test_slow_links_are_the_same_in_graph_and_tiers(kind, tier, share):
    fault = f"degrade:{tier}={share}"
    topology = with_fault(graph(kind), fault, 8)
    fabric = with_degraded(builders.get(kind).reduced(SHAPE), fault)
    for size, stride in ((8, 8), (64, 1), (8, 1)):
        wanted = group_bandwidth(fabric, size, stride, "all-to-all").bandwidth
        assert min(rates(topology, size, stride)) == pytest.approx(wanted)


def test_fair_shares_by_hand():
    """Two flows share a link of 10; one of them is held to 2 elsewhere, so the other gets 8."""
    topology = graph("nvlink-domain", Shape(4, 4, 4, nvlink_bandwidth=10.0))
    up, down = (("gpu", 0), ("nvswitch", 0)), (("nvswitch", 0), ("gpu", 1))
    groups: list[routes.Loads] = [{up: 1.0, down: 5.0}, {up: 1.0}, {}]
    assert measures.fair_shares(topology, groups) == [2.0, 8.0, float("inf")]


@pytest.mark.parametrize(
    ("kind", "fault", "words"),
    [
        ("rail", "nic", "is not KIND:TARGET; write for example nic:node3.rail5"),
        ("rail", "nick:node3", "no kind of fault 'nick'; did you mean 'nic'?"),
        ("rail", "nic:node9.rail1", "no NIC 'node9.rail1'; node0 to node7, rail0 to rail7"),
        ("rail", "nic:3.5", "no NIC '3.5'; write for example nic:node3.rail5"),
        ("rail", "rail:8", "no rail '8'; 0 to 7"),
        ("rail", "node:8", "no node '8'; 0 to 7"),
        ("rail", "switch:lef1", "no switch 'lef1'; did you mean 'leaf1'?"),
        ("rail", "link:leaf0-spin0.3", "no link 'leaf0-spin0.3'; did you mean 'leaf0-spine0.3'?"),
        ("rail", "degrade:spin=0.5", "no tier 'spin'; did you mean 'spine'?"),
        ("rail", "degrade:spine=2", "'2' is not a share; more than 0 and at most 1: spine=0.5"),
        ("rail", "degrade:spine", "'' is not a share"),
        ("fat-tree", "switch:leaf2", "leaves 9 parts that cannot reach each other; GPU 16 is cut off"),
        ("tree", "link:switch-1.0.0-switch-2.0.0", "no link"),
    ],
)
def test_what_cannot_break(kind, fault, words):
    shape = SHAPE if kind != "fat-tree" else Shape(64, 8, 1, radix=16)
    with pytest.raises(SpecError) as refused:
        with_fault(graph(kind, shape), fault, 8)
    (issue,) = refused.value.issues
    assert f"--fault {fault}: {words}" in str(issue)


def test_large_fabrics_only_slow_down():
    fabric = builders.get("rail").reduced(Shape(16_384, 8, 8))
    with pytest.raises(SpecError, match="takes the graph of every link"):
        with_degraded(fabric, "nic:node3.rail5")
    slower = with_degraded(fabric, "degrade:spine=0.5")
    before, after = (group_bandwidth(one, 16_384, 1, "all-to-all").bandwidth for one in (fabric, slower))
    assert after < before
