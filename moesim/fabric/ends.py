"""Loads of the links that a GPU has to itself: its NVLink and its NIC."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moesim.fabric.layout import Flows
from moesim.fabric.tiers import LinkLoad


def end_load(tier: str, capacity: float, found: Flows, chosen: NDArray[np.bool_], world: int) -> LinkLoad:
    """Load of the links at both ends of the chosen messages."""
    weight = found.weight[chosen]
    sides = [np.bincount(end[chosen], weight, world) for end in (found.source, found.target)]
    return LinkLoad(tier, capacity, float(max(side.max() for side in sides)), float(2 * weight.sum()))
