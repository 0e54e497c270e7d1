"""What the slowest rank of an expert group gets, from how popular its experts are."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.workload.routing import parse, popularity, routings

SHUFFLES = 64
"""Placements of experts on ranks of which a typical one is taken. [-]"""


@dataclass(frozen=True)
class Cut:
    """What limits and relieves hot experts.

    ``capacity``: rows that are kept over the mean, of a rank or (``per_expert``) of each expert; None keeps all.
    ``replicated``: hottest experts that every rank holds a copy of. [-]
    """

    capacity: float | None = None
    per_expert: bool = False
    replicated: int = 0


@dataclass(frozen=True)
class Skew:
    """Uneven routing as the slowest rank sees it. Rows over the mean of all ranks. [-]

    Attributes
    ----------
    load
        Rows that its experts work on.
    exchanged
        Rows that come from, or go to, other ranks or itself through the exchange.
    dropped
        Share of all rows, over all ranks, that a capacity drops.
    groups
        Experts on the rank, copies included.
    spread
        Rows of each of them over their mean; 0 where a column has fewer. (groups, ...)
    """

    load: Numeric
    exchanged: Numeric
    dropped: Numeric
    groups: Numeric
    spread: NDArray[np.float64]


def skew(routing: str, num_experts: int, ep: Numeric, cut: Cut) -> Skew:
    """What the slowest rank gets under a routing with a law; one column for each entry of `ep`."""
    sizes = np.ravel(np.asarray(ep))
    columns = [_skew(routing, num_experts, int(size), cut) for size in sizes]
    if np.ndim(ep) == 0:
        return columns[0]
    most = max(len(column.spread) for column in columns)
    spread = np.stack([np.pad(column.spread, (0, most - len(column.spread))) for column in columns], axis=1)

    def stacked(name: str) -> NDArray[np.float64]:
        return np.array([float(getattr(column, name)) for column in columns])

    return Skew(stacked("load"), stacked("exchanged"), stacked("dropped"), stacked("groups"), spread)


@lru_cache(maxsize=4096)
def _skew(routing: str, num_experts: int, ep: int, cut: Cut) -> Skew:
    r"""One column: kept rows of each expert, their sums over ranks, and the rank with the largest.

    .. math:: L_r = \min\left(c,\; \frac{1}{E / n} \sum_{i \in r} p_i + \frac1E \sum_{i \in H} p_i\right)

    Copies of the replicated experts H share their rows evenly, so those stay on the rank that has the tokens.
    """
    whole = rows = placed(routing, num_experts, ep)
    if cut.capacity is not None and cut.per_expert:
        rows = np.minimum(rows, cut.capacity)
    hot = np.argsort(-rows, kind="stable")[: cut.replicated]
    cold = rows.copy()
    cold[hot] = 0.0
    shared = float(rows[hot].sum() / num_experts)
    by_rank = cold.reshape(ep, -1).sum(axis=1) / (num_experts / ep)
    asked = by_rank + shared
    kept = asked if cut.capacity is None or cut.per_expert else np.minimum(asked, cut.capacity)
    worst = int(np.argmax(kept))
    load = float(kept[worst])
    here = np.arange(num_experts).reshape(ep, -1)[worst]
    local = np.concatenate([rows[[one for one in here if one not in set(hot.tolist())]], rows[hot] / ep])
    exchanged = load * float(by_rank[worst] / asked[worst]) if asked[worst] else 0.0
    mean = local.mean() if local.sum() else 1.0
    dropped = float((whole - rows).mean() + (asked - kept).mean())
    return Skew(load, exchanged, dropped, float(len(local)), local / mean)


@lru_cache(maxsize=1024)
def placed(routing: str, num_experts: int, ep: int) -> NDArray[np.float64]:
    """Rows of each expert over the mean in the order of the ranks, (experts,). [-]

    Where popularity and place have nothing to do with each other, the placement is the one of 64 fixed shuffles whose
    hottest rank is closest to the mean of their hottest ranks.
    """
    rows = popularity(routing, num_experts)
    if not routings.get(parse(routing)[0]).shuffled or ep == 1:
        return rows
    generator = np.random.default_rng(0)
    shuffled = rows[np.stack([generator.permutation(num_experts) for _ in range(SHUFFLES)])]
    hottest = shuffled.reshape(SHUFFLES, ep, -1).sum(axis=2).max(axis=1)
    typical = int(np.argmin(np.abs(hottest - hottest.mean())))
    return np.asarray(shuffled[typical])
