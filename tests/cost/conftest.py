"""H100 machines, whole or with some constants changed."""

from collections.abc import Callable
from dataclasses import replace

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
    """The GPU with rates multiplied, such as ``faster(bf16_flop_rate=2)``; arrays make columns."""

    def change(**factors: float | np.ndarray) -> Gpu:
        return replace(gpu, **{name: getattr(gpu, name) * factor for name, factor in factors.items()})

    return change
