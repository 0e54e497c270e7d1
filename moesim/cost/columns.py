"""Several machines as one whose numbers are columns: what differs between them becomes an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from moesim.cost.machine import Machine

PARTS = ("gpu", "links", "host", "runtime", "transports")
"""What prices and the host ask for."""


def stacked(machines: Sequence[Machine]) -> Machine:
    """Return one machine with a column for each; they differ in numbers only, not in what they are made of."""
    first = machines[0]
    return replace(first, **{name: _together([getattr(one, name) for one in machines]) for name in PARTS})


def _together(values: Sequence[Any]) -> Any:
    first = values[0]
    if is_dataclass(first) and not isinstance(first, type):
        changes = {}
        for field in fields(first):
            members = [getattr(value, field.name) for value in values]
            changes[field.name] = _together(members)
        return replace(first, **changes)
    if isinstance(first, Mapping):
        return {key: _together([value[key] for value in values]) for key in first}
    if isinstance(first, float | int) and not isinstance(first, bool) and any(value != first for value in values):
        return np.array(values, dtype=float)
    return first
