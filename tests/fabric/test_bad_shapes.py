"""Fabrics that the parts at hand cannot make: one line each."""

import pytest

from moesim.base.errors import SpecError
from moesim.fabric.builders import builders
from moesim.fabric.resolve import fabric_named, network, parts_of
from moesim.fabric.shape import Shape
from moesim.spec import library

CASES = [
    ("fat-tree", Shape(64, radix=4, levels=2), "radix: 2 levels of switches with 4 ports join 8 GPUs, not 64"),
    ("fat-tree", Shape(100, radix=2), "radix: 5 levels of switches with 2 ports join 2 GPUs, not 100"),
    (
        "rail",
        Shape(4096, 8, 8, radix=16, levels=2),
        "radix: 2 levels of switches with 16 ports join 128 GPUs, not 4096",
    ),
    ("rail-only", Shape(64, 8, 1), "kind: an NVLink domain of 1 does not hold a GPU of each of 8 rails"),
    ("rail", Shape(64, 8, 4), "kind: an NVLink domain of 4 does not hold a GPU of each of 8 rails"),
    ("torus", Shape(64, sides=(3, 5)), "sides: 3 x 5 is 15, not 64 nodes"),
    ("torus", Shape(128, 4, 64), "kind: an NVLink domain of 64 is no node of 4 GPUs"),
    ("fully-connected", Shape(128, radix=64), "radix: 128 nodes need 127 links each, and a node has 64 ports"),
    ("dragonfly", Shape(100, radix=8), "radix: routers of 8 ports join 72 GPUs, not 100"),
    ("nvlink-domain", Shape(16, 8, 8), "num_gpus: 16 GPUs do not fit in an NVLink domain of 8"),
    ("pcie-node", Shape(16, 8), "num_nodes: 2 nodes have no network between them"),
    ("tree", Shape(16, arity=1), "arity: a tree of arity 1 does not branch"),
    ("wan", Shape(64, 8, 8), "sites: 64 GPUs are not shared out by 1 sites"),
    ("wan", Shape(64, 8, 8, sites=2), "wan_bandwidth: sites without a bandwidth between them"),
    ("wan", Shape(48, 8, 32, sites=2, wan_bandwidth=1e9), "sites: 2 sites split a node or an NVLink domain"),
    ("wan", Shape(16, 8, 8, sites=2, wan_bandwidth=1e9), "sites: a site of 8 GPUs is a single NVLink domain"),
]


@pytest.mark.parametrize(("kind", "shape", "words"), CASES)
def test_one_line(kind, shape, words):
    with pytest.raises(SpecError) as refused:
        builders.get(kind).reduced(shape)
    assert str(refused.value).startswith(f"fabric: {words}; ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", library.names("fabrics"))
def test_every_fabric_that_comes_with_moesim_can_be_built(name):
    spec = library.get("fabrics", name)
    nodes = 1 if spec.kind in ("nvlink-domain", "pcie-node") else 16
    joined = network(parts_of(spec, library.get("nodes", "hgx-h100")), nodes * 8)
    assert joined.reduced.world == nodes * 8
    assert joined.topology.fabric == joined.reduced
    assert 0.2 < joined.path_efficiency <= 1


def test_oversubscription_beside_the_name():
    assert fabric_named("fat-tree:2").oversubscription.value == 2
    assert fabric_named("fat-tree").oversubscription.value == 1


@pytest.mark.parametrize("name", ["fat-tree:x", "fat-tree:0", "fat-tree:-1", "fat-tree:inf"])
def test_what_is_no_oversubscription(name):
    with pytest.raises(SpecError, match="is not an oversubscription; write fat-tree:2"):
        fabric_named(name)
