"""Ranks in arbitrary order: what is left of NVLink."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.matrix.placing import arbitrary_order, shared_domain
from moesim.problem import from_names
from moesim.workload.mesh import Mesh


@pytest.fixture(scope="module")
def machine():
    return replace(from_names("olmo3moe-medium-64e", "hgx-b300:1", "olmo-core").machine, num_gpus=64)


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (8, 1), (16, 2), (64, 8)])
def test_a_group_has_as_many_neighbours_as_an_even_deal_leaves(machine, size, expected):
    assert shared_domain(float(size), machine) == expected


def test_the_usual_order_fills_domains_and_an_arbitrary_one_does_not(machine):
    mesh = Mesh(64, 1, 1, 4, 1, np.array([8.0, 16.0]))
    usual, arbitrary = (one.group(mesh, "ep") for one in (machine, arbitrary_order(machine, mesh)))
    assert usual.per_node.tolist() == [8, 8]
    assert arbitrary.per_node.tolist() == [1, 2]
    assert arbitrary.size.tolist() == usual.size.tolist()
