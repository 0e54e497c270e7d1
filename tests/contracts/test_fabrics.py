"""What every kind of fabric owes its users."""

from dataclasses import replace

import pytest

from moesim.fabric.builders import builders
from moesim.fabric.layout import PATTERNS
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import group_bandwidth
from moesim.spec.check import sources

SINGLE = {"nvlink-domain": Shape(8, 8, 8), "pcie-node": Shape(8, 8)}
SHAPE = Shape(64, 4, 4, radix=16, sites=2, wan_bandwidth=100e9)


def shape_of(kind):
    return SINGLE.get(kind, SHAPE)


@pytest.fixture(params=builders.names())
def kind(request):
    return request.param


def test_it_says_where_it_comes_from(kind):
    (entry,) = (entry for entry in builders.entries() if entry.name == kind)
    assert entry.summary
    assert entry.source in sources()


def test_graph(kind):
    """Links of a capacity, a latency and a kind that the loads know; GPUs at level 0."""
    topology = builders.get(kind).graph(shape_of(kind))
    assert {vertex[0] for vertex, data in topology.graph.nodes(data=True) if data["level"] == 0} == {"gpu"}
    assert set(topology.gpus) <= set(topology.graph)
    for _, _, link in topology.graph.edges(data=True):
        assert link["capacity"] > 0
        assert link["latency"] >= 0
        assert link["kind"]


def test_tiers_grow_outwards(kind):
    fabric = builders.get(kind).reduced(shape_of(kind))
    ways = [tier.latency for tier in fabric.tiers if tier.name != "nvlink"]
    assert ways == sorted(ways)
    assert all(tier.bandwidth > 0 and tier.size <= fabric.world for tier in fabric.tiers)
    if kind != "rail-only":
        assert fabric.tiers[-1].size == fabric.world


@pytest.mark.parametrize("pattern", PATTERNS)
def test_twice_the_links_is_twice_the_bandwidth(kind, pattern):
    shape = shape_of(kind)
    names = ("nvlink_bandwidth", "nic_bandwidth", "pcie_bandwidth", "wan_bandwidth")
    double = replace(shape, **{name: 2 * getattr(shape, name) for name in names})
    slow, fast = (builders.get(kind).reduced(one) for one in (shape, double))
    assert fast.bisection == pytest.approx(2 * slow.bisection)
    for size, stride in ((8, 1), (2, 4), (shape.num_gpus, 1)):
        if shape.num_gpus % (size * stride) == 0:
            rates = [group_bandwidth(fabric, size, stride, pattern).bandwidth for fabric in (slow, fast)]
            assert rates[1] == pytest.approx(2 * rates[0])
