"""H100 machines, whole or with some constants changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from moesim.cost.machine import Gpu, Links, Machine
from moesim.problem import Problem


@pytest.fixture(scope="session")
def machine(qwen: Problem) -> Machine:
    return qwen.machine


@pytest.fixture(scope="session")
def gpu(machine: Machine) -> Gpu:
    return machine.gpu


@pytest.fixture(scope="session")
def links(machine: Machine) -> Links:
    return machine.links


@pytest.fixture(scope="session")
def faster(gpu: Gpu) -> Callable[..., Gpu]:
    """The GPU with numbers multiplied, such as ``faster(rates=2)``; arrays make columns."""

    def change(**factors: float | np.ndarray) -> Gpu:
        values: dict[str, Any] = {}
        for name, factor in factors.items():
            value = getattr(gpu, name)
            values[name] = {key: one * factor for key, one in value.items()} if name == "rates" else value * factor
        return replace(gpu, **values)

    return change
