"""What a network leaves of the NICs, in the prices of collectives."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.collectives import algorithms, choice, collective_time
from moesim.cost.machine import Group
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.fabric.layout import Layout
from moesim.fabric.network import mean_latency
from moesim.fabric.reach import FREE, LayoutReach, MembersReach, Quantity, StackedReach
from moesim.fabric.resolve import fabric_named, network, parts_of
from moesim.fabric.tiers import members_bandwidth
from moesim.problem import load
from moesim.spec import library

LONG = 2.0**30
WHAT: tuple[Quantity, ...] = (
    "ring",
    "tree",
    "all-to-all",
    "rail-all-to-all",
    "hop-latency",
    "far-latency",
    "grid-share",
    "grid-steps",
)


def joined(name, nodes=64, node="hgx-h100", **wiring):
    spec = library.get("nodes", node)
    found = network(parts_of(fabric_named(name), spec), nodes * spec.gpus_per_node)
    return replace(found, shape=replace(found.shape, **wiring))


def everybody(fabric, size=None, stride=1):
    shape = fabric.shape
    size = size or shape.num_gpus
    per_node = max(1, min(size, shape.nvlink_domain // stride))
    return Group(float(size), float(per_node), LayoutReach(fabric, float(size), float(stride), float(per_node)))


@pytest.fixture(scope="module")
def links():
    return load("qwen3-235b-h100x256").machine.links


@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send-recv"])
def test_oversubscription_costs_and_one_to_one_does_not(links, collective):
    sizes = [2, 16] if collective == "send-recv" else [64, 512]
    for size in sizes:
        stride = 256 if size < 64 and size * 256 <= 512 else 1
        times = [
            collective_time(collective, LONG, everybody(joined(name), size, stride), links)
            for name in ("fat-tree:1", "fat-tree:2", "fat-tree:4", "fat-tree:8")
        ]
        plain = Group(float(size), everybody(joined("fat-tree"), size, stride).per_node)
        assert times[0] == collective_time(collective, LONG, plain, links)
        assert times == sorted(times)


def test_the_fast_answer_for_non_blocking_networks_is_the_computed_one():
    for name in ("rail-ndr400", "rail-only", "fat-tree:1"):
        fabric = joined(name)
        assert fabric.free
        for size, stride in ((2, 1), (8, 8), (64, 8), (512, 1), (2, 256)):
            members = Layout(512, size, stride).members()
            for pattern in ("ring", "tree", "all-to-all"):
                assert fabric.share(members, pattern) == pytest.approx(1)
            assert fabric.extra_latency(members, "ring") == (0, 0)


@pytest.mark.parametrize("name", ["fat-tree:2", "torus3d", "tree", "wan-2x800g", "fully-connected"])
def test_other_networks_are_not_taken_for_non_blocking(name):
    assert not joined(name).free


def test_arrays_and_columns_are_the_scalars():
    fabric = joined("torus3d")
    sizes, strides = np.array([8.0, 64.0, 8.0, 1.0, 3.0]), np.array([1.0, 8.0, 64.0, 4.0, 5.0])
    per_node = np.array([8.0, 1.0, 1.0, 1.0, 1.0])
    each = [LayoutReach(fabric, *row) for row in zip(sizes.tolist(), strides.tolist(), per_node.tolist(), strict=True)]
    listed = [MembersReach(fabric, Layout(512, 64, 8).members(), 1), FREE]
    stacked = StackedReach(listed, np.array([0, 1, 0]))
    for what in WHAT:
        together = LayoutReach(fabric, sizes, strides, per_node).of(what)
        assert isinstance(together, np.ndarray)
        assert together.tolist() == [one.of(what) for one in each]
        assert together[-1] == together[-2] == FREE.of(what)
        assert stacked.of(what).tolist() == [each[1].of(what), FREE.of(what), each[1].of(what)]


@pytest.mark.parametrize("name", ["torus3d", "torus2d", "ring"])
def test_a_torus_is_not_faster_than_its_bisection(links, name):
    fabric = joined(name)
    group = everybody(fabric)
    time = collective_time("all-to-all", LONG, group, links)
    assert time > LONG * 512 / 4 / fabric.reduced.bisection
    sides, link = fabric.reduced.sides, fabric.reduced.link_bandwidth
    used = [side for side in sides if side > 1]
    closed_form = LONG * 8 * (63 / 64) / (2 * len(used) * link)  # a node gathers what its eight GPUs do
    gather = algorithms.get("torus-all-gather").time(LONG, group, links)
    assert gather > closed_form / 8
    chosen = choice("all-gather", LONG, group, links)
    assert chosen.time <= gather
    assert chosen.algorithm == "torus"


def test_three_dimensions_beat_two_where_all_talk_to_all(links):
    flat, cube = (
        collective_time("all-to-all", LONG, everybody(joined(name)), links) for name in ("torus2d", "torus3d")
    )
    assert cube < 0.9 * flat


def test_a_torus_of_one_long_side_is_a_ring(links):
    ring, line = joined("ring"), joined("torus3d", sides=(64, 1, 1))
    for collective in ("all-gather", "all-reduce", "all-to-all"):
        times = [collective_time(collective, LONG, everybody(fabric), links) for fabric in (ring, line)]
        assert times[0] == pytest.approx(times[1])


def test_rings_of_a_torus_are_off_elsewhere_and_can_be_switched_off(links):
    group = everybody(joined("torus3d"))
    off = replace(links, nccl=replace(links.nccl, algorithms=("ring",)))
    assert choice("all-reduce", LONG, group, off).algorithm == "ring"
    assert algorithms.get("torus-all-reduce").time(LONG, everybody(joined("fat-tree:2")), links) == np.inf


def test_two_levels_where_they_are_switched_on(links):
    group = everybody(joined("fat-tree:4"))
    on = replace(links, nccl=replace(links.nccl, hierarchical=True))
    assert algorithms.get("two-level-all-reduce").time(LONG, group, links) == np.inf
    two = algorithms.get("two-level-all-reduce").time(LONG, group, on)
    wires = on.nic_bandwidth * 8 * on.nic_ring_efficiency
    assert two > 2 * LONG * 63 / 64 / wires
    assert two > 2 * LONG * 7 / 8 / on.nvlink_bandwidth
    named = replace(on, nccl=replace(on.nccl, algorithms=("hierarchical",)))
    assert choice("all-reduce", LONG, group, named).name == "two-level-all-reduce"
    assert choice("all-to-all", LONG, group, named).name == "hierarchical-all-to-all"


def test_rows_that_stay_on_their_rail_cost_less_where_rails_meet_narrowly(links):
    """Without forwarding through NVLink, seven eighths of an all-to-all cross the rails at the spine."""
    narrow = {"oversubscription": (4.0,)}
    direct, forwarded = (
        everybody(joined("rail-ndr400", nodes=32, rails_forward=forward, **narrow)) for forward in (False, True)
    )
    assert forwarded.reach.of("all-to-all") == 1 > 2 * direct.reach.of("all-to-all")
    assert direct.reach.of("rail-all-to-all") == 1
    on = replace(links, nccl=replace(links.nccl, hierarchical=True))
    small = LONG / 64
    flat, two = (
        algorithms.get(name).time(small, direct, on) for name in ("pairwise-all-to-all", "hierarchical-all-to-all")
    )
    assert two < flat
    assert choice("all-to-all", small, direct, on).name == "hierarchical-all-to-all"


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_rails_alone_are_as_fast_where_traffic_stays_on_its_rail(links, ratio):
    """With forwarding through NVLink no message changes its rail, so nobody misses the spine."""
    alone = everybody(joined("rail-only", nodes=32))
    joint = everybody(joined("rail-ndr400", nodes=32, oversubscription=(ratio,)))
    for collective in ("all-gather", "all-reduce", "all-to-all"):
        times = [collective_time(collective, LONG, group, links) for group in (alone, joint)]
        assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_one_node_has_no_time_on_its_nics():
    changes = {"cluster.count": 1, "pp": 1, "vpp": 1, "schedule": "none", "ep": 8, "global_batch": 64}
    node = load("qwen3-235b-h100x256").with_changes(changes)
    slow = node.with_changes({"nic.bandwidth": "10 Gb/s"})
    other = node.with_changes({"cluster.fabric": "torus3d"})
    assert estimate(node).step_time_s == estimate(slow).step_time_s == estimate(other).step_time_s


def test_two_sites_add_their_distance_once_a_crossing(links):
    near, far = joined("wan-2x800g", wan_latency=0.1e-3), joined("wan-2x800g", wan_latency=1e-3)
    ring = [algorithms.get("ring-all-gather").time(1024.0, everybody(fabric, 64, 8), links) for fabric in (near, far)]
    crossing = 0.9e-3  # a ring over two sites has two edges between them
    assert ring[1] - ring[0] == pytest.approx(2 * crossing * 63 / 64, rel=0.02)
    tree = [algorithms.get("tree-all-reduce").time(1024.0, everybody(fabric, 64, 8), links) for fabric in (near, far)]
    assert tree[1] - tree[0] == pytest.approx(2 * crossing, rel=0.02)


def test_the_mean_latency_of_neighbours_lies_between_near_and_far():
    fabric = joined("fat-tree:2")
    members = Layout(512, 512, 1).members()
    found = members_bandwidth(fabric.priced, members, "ring")
    hops = [2 * level.latency for level in fabric.priced.levels]
    assert hops[0] < mean_latency(fabric.priced, found) < sum(hops)


def test_hashed_paths_and_incast_reach_the_prices():
    adaptive, hashed = joined("rail-ndr400", nodes=128), joined("roce-400", nodes=128, node="hgx-h100-roce400")
    members = Layout(1024, 1024, 1).members()
    assert adaptive.share(members, "all-to-all") == pytest.approx(1)
    assert hashed.share(members, "all-to-all") < 0.9
    reach = everybody(hashed, 4, 256).reach
    assert reach.of("ring") == pytest.approx(hashed.path_efficiency / 0.95)
    assert everybody(hashed, 256).reach.of("ring") == pytest.approx(1)
    assert reach.of("all-to-all") == pytest.approx(reach.of("ring") * hashed.incast_efficiency, rel=0.2)


@pytest.mark.parametrize("quantity", ["all-to-all", "rail-all-to-all"])
def test_nics_of_two_domains_have_one_sender_each(quantity):
    fabric = joined("roce-400", nodes=8, node="hgx-h100-roce400")
    two, four = (everybody(fabric, 8 * domains).reach.of(quantity) for domains in (2, 4))
    assert two == pytest.approx(1)
    assert four == pytest.approx(fabric.incast_efficiency)


@pytest.mark.parametrize("fabric", ["fat-tree:4", "torus2d", "wan-2x800g"])
def test_a_batch_of_strategies_holds_the_numbers_of_estimates(fabric):
    problem = load("qwen3-235b-h100x256").with_changes({"cluster.fabric": fabric})
    strategies = [problem.strategy.replace(ep=ep) for ep in (8, 16, 32)]
    batch = evaluate(problem, strategies).step_time_s
    assert batch.tolist() == pytest.approx([estimate(problem, one).step_time_s for one in strategies], rel=1e-12)


def test_constants_are_ranked_on_a_blocking_network():
    answer = estimate(load("qwen3-235b-h100x256").with_changes({"cluster.fabric": "torus2d"}))
    strongest = answer.constants[0]
    assert abs(strongest.elasticity) > 0.05
    assert answer.binding["resource"] == "nic"
