"""Shapes of small fabrics."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from moesim.base.errors import SpecError
from moesim.fabric.builders import builders
from moesim.fabric.shape import Shape

NODES = ((1, 1), (2, 2), (2, 4), (4, 4), (2, 1))
"""GPUs in a node and in an NVLink domain."""
SWITCHES = ((4, ()), (8, (1.0,)), (8, (3.0,)), (6, (2.0, 2.0)))
"""Ports, and oversubscription of each level."""

Shapes = Callable[[str], Iterator[Shape]]


def small_shapes(kind: str, most_nodes: int = 12) -> Iterator[Shape]:
    """Every small shape that a kind accepts."""
    for per_node, domain in NODES:
        for nodes in (2, 3, 4, 6, 8, 12):
            for radix, ratios in SWITCHES:
                shape = Shape(nodes * per_node, per_node, domain, radix=radix, oversubscription=ratios)
                shape = replace(shape, sites=2, wan_bandwidth=20e9)
                if nodes > most_nodes or shape.num_gpus % domain:
                    continue
                try:
                    builders.get(kind).reduced(shape)
                except SpecError:
                    continue
                yield shape


@pytest.fixture
def shapes() -> Shapes:
    return small_shapes
