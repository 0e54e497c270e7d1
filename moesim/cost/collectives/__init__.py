"""Collective algorithms: one family a file, each registered under a name with the operations it serves.

Sizes follow nccl-tests: all-reduce buffer; all-gather total received; reduce-scatter total sent; all-to-all bytes a
rank sends in total, its own share included; send-recv payload.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from moesim.base.numeric import Numeric
from moesim.base.registry import Registry
from moesim.cost.collectives.elementwise import PLAIN, smaller
from moesim.cost.machine import Group, Links

CollectiveTime = Callable[[Numeric, Group, Links], Numeric]

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send-recv")


@dataclass(frozen=True, eq=False)
class Algorithm:
    """``time(size, group, links)`` of one collective by one algorithm; infinite where it does not apply.

    ``family``: its name in ``NCCL_ALGO``. ``protocols``: the same time for each protocol where NCCL has several.
    """

    collective: str
    time: CollectiveTime
    family: str = ""
    protocols: Mapping[str, CollectiveTime] = field(default_factory=lambda: MappingProxyType({}))


algorithms: Registry[Algorithm] = Registry(
    "collective algorithm", package="moesim.cost.collectives", entry_points="moesim.collectives"
)


@dataclass(frozen=True)
class Choice:
    """The fastest way for one call: registered name, algorithm and protocol as NCCL names them, and its time. [s]"""

    name: str
    algorithm: str
    protocol: str
    time: float


def fastest(times: Mapping[str, CollectiveTime]) -> CollectiveTime:
    """Time of the fastest of several protocols."""
    functions = tuple(times.values())

    def time(size: Numeric, group: Group, links: Links) -> Numeric:
        best = functions[0](size, group, links)
        for other in functions[1:]:
            best = smaller(best, other(size, group, links))
        return best

    return time


def collective_time(collective: str, size: Numeric, group: Group, links: Links) -> Numeric:
    """Time of the fastest algorithm that serves the collective; no ranks to talk to, or nothing to say, costs nothing. [s]"""
    if isinstance(size, np.ndarray) and size.ndim == 0:
        size = float(size)
    best: Numeric = np.inf
    for algorithm in serving(collective):
        best = smaller(best, algorithm.time(size, group, links))
    if isinstance(group.size, PLAIN) and isinstance(size, PLAIN):
        return best if group.size > 1 and size > 0 else 0.0 * best if isinstance(best, np.ndarray) else 0.0
    return np.where((group.size > 1) & (np.asarray(size) > 0), best, 0.0)


def serving(collective: str) -> tuple[Algorithm, ...]:
    """Algorithms of a collective."""
    entries = algorithms.entries()
    return _serving(collective, tuple(entry.item for entry in entries))


@lru_cache(maxsize=64)
def _serving(collective: str, items: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    return tuple(item for item in items if item.collective == collective)


def chosen_algorithm(collective: str, size: float, group: Group, links: Links) -> str:
    """Name of the fastest algorithm for one (scalar) call."""
    return choice(collective, size, group, links).name


def choice(collective: str, size: float, group: Group, links: Links) -> Choice:
    """Fastest algorithm and protocol for one (scalar) call."""
    found = []
    for entry in algorithms.entries():
        if entry.item.collective == collective:
            ways = entry.item.protocols or {"simple": entry.item.time}
            found += [
                Choice(entry.name, entry.item.family, protocol, float(time(size, group, links)))
                for protocol, time in ways.items()
            ]
    return min(found, key=lambda one: one.time)


__all__ = [
    "COLLECTIVES",
    "Algorithm",
    "Choice",
    "algorithms",
    "choice",
    "chosen_algorithm",
    "collective_time",
    "serving",
]
