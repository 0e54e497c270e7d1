"""A machine whose constants vary over columns: for the elasticity of an answer on each constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Machine

STEP = 0.01
FIXED = ("num_sms", "memory_capacity", "bf16_flop_rate")
"""Constants that are no continuous quantity of the step time."""
PARTS = ("gpu", "links", "host")


def constants(machine: Machine, transport: str) -> dict[str, float]:
    """Scalar constants that can move the step time, by path; of the transports only the one in use."""
    found = dict(_walk(machine, PARTS))
    for name, value in machine.transports.get(transport, {}).items():
        found[f"transports.{transport}.{name}"] = float(value)
    return found


def perturbed(machine: Machine, paths: list[str], first: int, columns: int) -> Machine:
    """Return the machine with the constant of the i-th path raised by 1 % in column ``first + i``."""
    values: dict[str, Numeric] = {}
    for index, path in enumerate(paths):
        factor = np.ones(columns)
        factor[first + index] += STEP
        values[path] = factor
    return with_factors(machine, values)


def with_factors(machine: Machine, values: Mapping[str, Numeric]) -> Machine:
    """Return the machine with constants times a factor by path, each a number or one for each column. [-]"""

    def changed(part: Any, prefix: str) -> Any:
        updates = {}
        for field in fields(part):
            value, path = getattr(part, field.name), f"{prefix}.{field.name}"
            if is_dataclass(value):
                updates[field.name] = changed(value, path)
            elif isinstance(value, Mapping):
                updates[field.name] = {
                    key: number * values[f"{path}.{key}"] if f"{path}.{key}" in values else number
                    for key, number in value.items()
                }
            elif path in values:
                updates[field.name] = value * values[path]
        return replace(part, **updates)

    parts = {name: changed(getattr(machine, name), name) for name in PARTS}
    transports = {
        name: {key: value * values.get(f"transports.{name}.{key}", 1.0) for key, value in items.items()}
        for name, items in machine.transports.items()
    }
    return replace(machine, transports=transports, **parts)


def _walk(part: Any, names: tuple[str, ...], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name in names:
        value, path = getattr(part, name), f"{prefix}{name}"
        if is_dataclass(value):
            yield from _walk(value, tuple(field.name for field in fields(value)), f"{path}.")
        elif isinstance(value, Mapping):
            yield from ((f"{path}.{key}", float(number)) for key, number in value.items())
        elif isinstance(value, float | int) and not isinstance(value, bool) and name not in FIXED:
            yield path, float(value)
