"""The share of its NIC that a rank keeps: what prices of a step need to know of a fabric."""

import numpy as np
import pytest

from moesim.fabric.layout import PATTERNS
from moesim.fabric.resolve import fabric_named, network, parts_of
from moesim.spec import library


def joined(name, nodes=32, node="hgx-h100"):
    return network(
        parts_of(fabric_named(name), library.get("nodes", node)), nodes * library.get("nodes", node).gpus_per_node
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["rail-ndr400", "rail-only", "fat-tree:1", "rail-xdr800"])
def test_a_non_blocking_network_leaves_every_rank_its_nic(name, pattern):
    network = joined(name)
    for size in (1, 2, 8, 32, 256):
        for stride in (stride for stride in (1, 4, 8, 32, 128) if 256 % (size * stride) == 0):
            assert network.shares(size, stride, pattern) == pytest.approx(1)


@pytest.mark.parametrize("ratio", [3.0, 7.0])
def test_an_oversubscribed_one_leaves_a_part(ratio):
    network = joined(f"fat-tree:{ratio:g}", nodes=128)
    assert network.shares(2, 512, "ring") == pytest.approx(1 / ratio)
    assert 1 / ratio < network.shares(1024, 1, "all-to-all") < 1.4 / ratio
    assert network.shares(8, 1, "all-to-all") == 1


def test_arrays_are_the_scalars():
    network = joined("fat-tree:3", nodes=128)
    sizes, strides = np.array([8.0, 32.0, 2.0, 8.0, 2.5]), np.array([1.0, 8.0, 512.0, 128.0, 1.0])
    together = network.shares(sizes, strides, "all-to-all")
    assert isinstance(together, np.ndarray)
    assert together.tolist() == [network.shares(*pair, "all-to-all") for pair in zip(sizes, strides, strict=True)]
    assert together[-1] == 1


def test_hashed_paths_use_less_than_adaptive_ones():
    hashed, adaptive = joined("roce-400", node="hgx-h100-roce400"), joined("rail-ndr400")
    assert hashed.path_efficiency < 0.6 < 0.9 < adaptive.path_efficiency
    slow = hashed.carrying(all_to_all=True).link_loads(np.arange(256)[None], "all-to-all")
    full = hashed.reduced.link_loads(np.arange(256)[None], "all-to-all")
    assert slow["leaf"].capacity == pytest.approx(full["leaf"].capacity * hashed.path_efficiency)
    assert slow["nic"].capacity == pytest.approx(full["nic"].capacity * hashed.incast_efficiency)
