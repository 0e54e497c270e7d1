"""Link loads by symmetry equal those of every message routed over the graph."""

import pytest

from moesim.base.errors import SpecError
from moesim.fabric import routes
from moesim.fabric.builders import builders
from moesim.fabric.builders.dragonfly import DragonflyBuilder
from moesim.fabric.graph import GraphBuilder
from moesim.fabric.layout import PATTERNS, Layout
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import group_bandwidth


def layouts(world):
    """Every size and stride that tile the ranks."""
    for size in (n for n in range(2, world + 1) if world % n == 0):
        for stride in (n for n in range(1, world // size + 1) if world // size % n == 0):
            yield Layout(world, size, stride)


def differences(graph, layout, pattern):
    """Relative differences of the busiest link and the sum of each kind of link."""
    members = layout.members()
    by_tier = graph.fabric.link_loads(members, pattern)
    by_link = routes.by_kind(graph, routes.summed(routes.group_loads(graph, members, pattern)))
    assert {name for name, load in by_tier.items() if load.total} <= set(by_link)
    for name, load in by_tier.items():
        if load.total == 0:
            assert name not in by_link
            continue
        found = by_link[name]
        yield abs(load.most / load.capacity / (found.most / found.capacity) - 1)
        yield abs(load.total / found.total - 1)


KINDS = ["fat-tree", "rail", "rail-only", "tree", "torus", "ring", "fully-connected", "wan"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_small_shape_and_layout(shapes, kind):
    checked = 0
    for shape in shapes(kind, most_nodes=4):
        graph = builders.get(kind).graph(shape)
        for layout in layouts(shape.num_gpus):
            for pattern in PATTERNS:
                assert max(differences(graph, layout, pattern), default=0.0) < 1e-9, (shape, layout, pattern)
                checked += 1
    assert checked > 200


def test_rails_without_forwarding():
    """Messages between rails climb to the spine."""
    for per_node, domain, nodes in ((2, 2, 6), (4, 4, 4), (2, 4, 8)):
        shape = Shape(per_node * nodes, per_node, domain, radix=8, oversubscription=(3.0,), rails_forward=False)
        graph = builders.get("rail").graph(shape)
        for layout in layouts(shape.num_gpus):
            for pattern in PATTERNS:
                assert max(differences(graph, layout, pattern), default=0.0) < 1e-9, (shape, layout, pattern)


def test_forwarding_keeps_traffic_on_its_rail():
    forwarded, climbing = (
        builders.get("rail").reduced(Shape(64, 8, 8, radix=16, rails_forward=forward)) for forward in (True, False)
    )
    members = Layout(64, 64).members()
    assert forwarded.link_loads(members, "all-to-all")["leaf"].most == 0
    spine = climbing.link_loads(members, "all-to-all")["leaf"]
    assert spine.most == pytest.approx(8 * 7 * 7 / 63)  # 8 GPUs a leaf, 7 other nodes, 7 other rails of 63 ranks


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("sides", [(4, 4), (3, 5), (2, 3, 4), (4, 2, 3)])
def test_every_layout_of_a_torus(sides, wrap):
    nodes = 1
    for side in sides:
        nodes *= side
    graph = builders.get("torus").graph(Shape(2 * nodes, 2, 2, sides=sides, wrap=wrap))
    for layout in layouts(2 * nodes):
        for pattern in PATTERNS:
            assert max(differences(graph, layout, pattern), default=0.0) < 1e-9, (layout, pattern)


@pytest.mark.parametrize("kind", ["fat-tree", "rail", "torus"])
@pytest.mark.parametrize(("size", "stride", "pattern"), [(1024, 1, "ring"), (256, 4, "tree"), (64, 1, "all-to-all")])
def test_1024_gpus(kind, size, stride, pattern):
    shape = Shape(1024, 8, 8, radix=32, oversubscription=(3.0,))
    found = list(differences(builders.get(kind).graph(shape), Layout(1024, size, stride), pattern))
    assert max(found) < 1e-9


@pytest.mark.parametrize("radix", [4, 8, 12])
def test_uniform_traffic_of_a_full_dragonfly(radix):
    """Every two groups exchange the traffic of all their pairs over one link."""
    endpoints = (radix + 1) // 4
    group = 2 * endpoints * endpoints
    world = group * (group + 1)
    fabric = DragonflyBuilder().reduced(Shape(world, radix=radix))
    load = fabric.link_loads(Layout(world, world).members(), "all-to-all")["group"]
    assert fabric.between_groups == pytest.approx(50e9)
    assert load.most / load.capacity == pytest.approx(group * group / (world - 1) / 50e9)


def test_100_000_gpus_take_no_graph(monkeypatch):
    monkeypatch.setattr(GraphBuilder, "__init__", lambda *_: pytest.fail("a graph was built"))
    fabric = builders.get("fat-tree").reduced(Shape(102_400, 8, 8, radix=128, oversubscription=(3.0,)))
    assert [tier.name for tier in fabric.tiers] == ["nvlink", "leaf", "spine", "core"]
    assert group_bandwidth(fabric, 102_400, 1, "all-to-all").binding == "leaf"
    assert group_bandwidth(fabric, 16, 6400, "ring").bandwidth == pytest.approx(50e9 / 3)
    assert group_bandwidth(fabric, 8, 1, "all-to-all").crossed == ("nvlink",)


def test_a_graph_of_100_000_gpus_is_refused():
    with pytest.raises(SpecError, match="102400 GPUs are too many for a graph"):
        builders.get("fat-tree").graph(Shape(102_400, 8, 8, radix=128))


def test_the_same_fabric_is_worked_out_once():
    one, other = (builders.get("rail").reduced(Shape(128, 8, 8)) for _ in range(2))
    assert one is not other
    assert group_bandwidth(one, 16, 8, "ring") is group_bandwidth(other, 16, 8, "ring")


@pytest.mark.parametrize(
    ("size", "stride", "words"), [(3, 1, "3 ranks, 1 apart, do not divide 16"), (0, 1, "0 is not")]
)
def test_groups_that_do_not_divide(size, stride, words):
    with pytest.raises(SpecError, match=words):
        Layout(16, size, stride)


def test_paths_of_equal_cost():
    """Two levels of radix 4: two spines, and one path inside a leaf."""
    graph = builders.get("fat-tree").graph(Shape(8, radix=4))
    far = routes.equal_cost_paths(graph, ("gpu", 0), ("gpu", 7))
    assert len(far) == 2
    assert {path[3][0] for path in far} == {"spine"}
    assert len(routes.equal_cost_paths(graph, ("gpu", 0), ("gpu", 1))) == 1
