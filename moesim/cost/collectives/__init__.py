"""Collective algorithms: one family a file, each registered under a name with the operations it serves.

Sizes follow nccl-tests: all-reduce buffer; all-gather total received; reduce-scatter total sent; all-to-all bytes a
rank sends in total, its own share included; send-recv payload.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.base.registry import Registry
from moesim.cost.machine import Group, Links

CollectiveTime = Callable[[Numeric, Group, Links], Numeric]


@dataclass(frozen=True)
class Algorithm:
    """``time(size, group, links)`` of one collective by one algorithm; infinite where it does not apply."""

    collective: str
    time: CollectiveTime


algorithms: Registry[Algorithm] = Registry(
    "collective algorithm", package="moesim.cost.collectives", entry_points="moesim.collectives"
)

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send-recv")


def collective_time(collective: str, size: Numeric, group: Group, links: Links) -> Numeric:
    """Time of the fastest algorithm that serves the collective; no ranks to talk to, or nothing to say, costs nothing. [s]"""
    times = [
        entry.item.time(size, group, links) for entry in algorithms.entries() if entry.item.collective == collective
    ]
    fastest = times[0]
    for other in times[1:]:
        fastest = np.minimum(fastest, other)
    return np.where((group.size > 1) & (np.asarray(size) > 0), fastest, 0.0)


def chosen_algorithm(collective: str, size: float, group: Group, links: Links) -> str:
    """Name of the fastest algorithm for one (scalar) call."""
    serving = [entry for entry in algorithms.entries() if entry.item.collective == collective]
    return min(serving, key=lambda entry: float(entry.item.time(size, group, links))).name
