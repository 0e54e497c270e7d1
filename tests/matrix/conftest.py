"""One small ensemble and one scenario, derived once."""

import pytest

from moesim.matrix.derive import derive
from moesim.matrix.ensemble import Ensemble, situations
from moesim.matrix.own import own_situations
from moesim.problem import load


@pytest.fixture(scope="session")
def matrix():
    """The published question over a small ensemble."""
    return derive(situations(Ensemble(even=6, skewed=2)))


@pytest.fixture(scope="session")
def h100():
    return own_situations(load("qwen3-235b-h100x256"))


@pytest.fixture(scope="session")
def nvl72():
    changes = {"cluster.node": "gb200-nvl72", "cluster.count": 64, "transport": "hybridep"}
    return own_situations(load("qwen3-235b-h100x256").with_changes(changes))
