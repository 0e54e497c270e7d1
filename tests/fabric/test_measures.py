"""Bisection and diameter: textbook formulas, and minimum cuts of the graph."""

import math
from itertools import permutations

import pytest

from moesim.fabric import measures
from moesim.fabric.builders import builders
from moesim.fabric.builders.torus import TorusBuilder
from moesim.fabric.shape import Shape

BAND = 50e9
ENDS = 4
"""Links from a GPU over its NIC into the network, at both ends of a path."""


def answers(kind, shape):
    """Bisection and diameter, which graph and tiers agree on."""
    fabric, graph = builders.get(kind).reduced(shape), builders.get(kind).graph(shape)
    assert measures.bisection(graph) == pytest.approx(fabric.bisection, rel=1e-12)
    assert measures.diameter(graph) == fabric.diameter
    return fabric.bisection, fabric.diameter


@pytest.mark.parametrize("kind", ["fat-tree", "rail", "rail-only", "tree", "torus", "ring", "fully-connected", "wan"])
def test_graph_and_tiers_agree_on_every_small_shape(shapes, kind):
    found = [answers(kind, shape) for shape in shapes(kind)]
    assert len(found) > 20


@pytest.mark.parametrize("count", [8, 32, 72])
def test_nvlink_domain(count):
    shape = Shape(count, count, count, nvlink_bandwidth=400e9)
    assert answers("nvlink-domain", shape) == (count / 2 * 400e9, 2)


@pytest.mark.parametrize(("count", "crossing"), [(2, 64e9), (8, 64e9), (16, 128e9)])
def test_pcie_node(count, crossing):
    """Half of the switches of four have one link each."""
    assert answers("pcie-node", Shape(count, count))[0] == crossing


@pytest.mark.parametrize("nodes", range(2, 14))
def test_ring(nodes):
    """Two links, except between two nodes; the NIC of a node feeds both of its links."""
    assert answers("ring", Shape(nodes)) == (BAND / 2 * (2 if nodes > 2 else 1), ENDS + nodes // 2)


@pytest.mark.parametrize("depth", range(1, 6))
def test_binary_tree(depth):
    """The root has one link to either half."""
    assert answers("tree", Shape(2**depth)) == (BAND, 2 * (depth + 1))


@pytest.mark.parametrize("nodes", range(2, 10))
def test_fully_connected(nodes):
    pairs = (nodes // 2) * (nodes - nodes // 2)
    assert answers("fully-connected", Shape(nodes)) == (pytest.approx(pairs * BAND / (nodes - 1)), ENDS + 1)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("radix", [4, 6])
def test_full_fat_tree(radix, levels):
    """2 (R/2)^L hosts at full bisection, 2 L links between switches and hosts, and the NICs."""
    hosts = 2 * (radix // 2) ** levels
    assert answers("fat-tree", Shape(hosts, radix=radix)) == (pytest.approx(hosts / 2 * BAND), 2 * levels + 2)
    assert builders.get("fat-tree").reduced(Shape(hosts + 2, radix=radix)).diameter > 2 * levels + 2


@pytest.mark.parametrize("ratios", [(1.0, 1.0), (3.0, 1.0), (1.0, 3.0), (3.0, 3.0)])
def test_oversubscription_divides_the_bisection(ratios):
    shape = Shape(16, radix=4, oversubscription=(1.0, 1.0), levels=3)
    full, _ = answers("fat-tree", shape)
    down = [round(4 * ratio / (1 + ratio)) for ratio in ratios]
    hosts = 4 * down[0] * down[1]
    crossing, _ = answers("fat-tree", Shape(hosts, radix=4, oversubscription=ratios, levels=3))
    assert full == 8 * BAND
    assert crossing == pytest.approx(hosts / 2 * BAND / math.prod(ratios))


@pytest.mark.parametrize(("kind", "further"), [("rail", 0), ("rail-only", 2)])
@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_rails(kind, further, nodes):
    """Full bisection of all rails; where they never meet, NVLink takes two links more."""
    shape = Shape(nodes * 2, 2, 2, radix=8, levels=2)
    bisection, diameter = answers(kind, shape)
    assert bisection == pytest.approx(nodes * BAND)
    crossed = 2 if kind == "rail" or nodes > 4 else 1
    assert diameter == 2 * (crossed + 1) + further


def torus_cut(sides, wrap):
    """Links between two halves: planes across a side, and half of the middle plane of an odd one."""
    if not sides:
        return 0
    side, *rest = sides
    if side == 1:
        return torus_cut(rest, wrap)
    planes = math.prod(rest) * (2 if wrap and side > 2 else 1)
    return planes + side % 2 * torus_cut(rest, wrap)


SIDES = [(4,), (2, 2), (3, 3), (4, 4), (2, 6), (5, 3), (2, 2, 2), (3, 3, 3), (4, 2, 2), (2, 3, 4), (4, 4, 4)]


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("sides", SIDES)
def test_torus(sides, wrap):
    shape = Shape(math.prod(sides), sides=sides, wrap=wrap)
    link = BAND / (2 * len(sides))
    hops = sum(side // 2 if wrap else side - 1 for side in sides)
    least = min(torus_cut(order, wrap) for order in permutations(sides))
    assert answers("torus", shape) == (pytest.approx(least * link), ENDS + hops)


@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_odd_torus_in_closed_form(side, dimensions):
    """2 (k^n - 1) / (k - 1) links for odd k."""
    fabric = TorusBuilder().reduced(Shape(side**dimensions, sides=(side,) * dimensions))
    assert fabric.bisection == 2 * (side**dimensions - 1) // (side - 1) * fabric.link_bandwidth


@pytest.mark.parametrize(("radix", "half_links"), [(4, 2), (8, 20)])
def test_full_dragonfly(radix, half_links):
    """(g/2)^2 links between halves of the groups (rounded to whole groups), and at most local, global, local."""
    per_router = (radix + 1) // 4
    groups = 2 * per_router * per_router + 1
    shape = Shape(2 * per_router**2 * groups, radix=radix)
    assert answers("dragonfly", shape) == (pytest.approx(half_links * BAND), ENDS + 3)


@pytest.mark.parametrize("gbps", [10, 400, 4000])
def test_wan_limits_the_bisection(gbps):
    shape = Shape(32, 2, 2, radix=8, sites=2, wan_bandwidth=gbps * 1e9 / 8)
    assert answers("wan", shape)[0] == pytest.approx(min(gbps * 1e9 / 8, 16 * BAND))
