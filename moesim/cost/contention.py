"""What kernels and an expert exchange lose to each other while they run side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric


@dataclass(frozen=True)
class Contention:
    """How much longer each takes beside the other. [-]

    ``kernels``: a kernel beside the exchange, of the categories in ``by_category`` what stands there; ``exchange``: the
    exchange beside kernels; ``gathers``: a kernel beside a gathering or reduction of sharded state. ``own``: only legs with
    operations of their own layer beside them, and those operations, lose anything.
    """

    kernels: Numeric = 0.0
    exchange: Numeric = 0.0
    gathers: Numeric = 0.0
    by_category: Mapping[str, Numeric] = field(default_factory=dict)
    own: bool = False

    @property
    def nothing(self) -> bool:
        """Whether neither loses anything."""
        return not any(np.any(value) for value in (self.kernels, self.exchange, *self.by_category.values()))


def stretched(
    device: NDArray[np.float64],
    categories: list[str],
    exchange: NDArray[np.bool_],
    compute: NDArray[np.bool_],
    counts: NDArray[np.float64],
    contention: Contention,
) -> NDArray[np.float64]:
    r"""Durations of operations that run beside each other. [s]

    .. math:: E' = E + s_e \min(E, C), \qquad t' = t \left(1 + s_t \min(E' / C, 1)\right)

    Of the exchange E no more than the kernels C last runs beside them, and of the kernels no more than the stretched
    exchange lasts: each pays its slowdown for that part, spread evenly.

    Parameters
    ----------
    device, categories
        Durations of the distinct operations and what they are. (n, ...) [s]
    exchange, compute
        Which of them run on the lane of the exchange, and on the SMs. (n,)
    counts
        How often each occurs in the chunk. (n,)
    contention
        Slowdowns.
    """
    if contention.nothing:
        return device
    column = (-1,) + (1,) * (device.ndim - 1)
    weighted = device * counts.reshape(column)
    moving, busy = weighted[exchange].sum(axis=0), weighted[compute].sum(axis=0)
    slower = 1 + contention.exchange * np.minimum(busy / np.maximum(moving, 1e-30), 1.0)
    beside = np.minimum(moving * slower / np.maximum(busy, 1e-30), 1.0)
    result = device.copy()
    for row in np.flatnonzero(exchange):
        result[row] = device[row] * slower
    for row in np.flatnonzero(compute):
        result[row] = device[row] * (1 + contention.by_category.get(categories[row], contention.kernels) * beside)
    return result
