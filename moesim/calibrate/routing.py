"""Routing skew of published tables: what the hottest rank works on where tokens follow a power law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from moesim.cost.grouped import HEIGHTS

DRAWS = 64


@dataclass(frozen=True)
class Skew:
    """Means over draws: rows of the hottest rank over those of an even one, its busy experts and their tiles. [-]"""

    load: float
    active: float
    tiles: Mapping[int, float]


@lru_cache(maxsize=65536)
def power_law_skew(exponent: float, tokens: int, experts: int, top_k: int, ranks: int) -> Skew:
    r"""What the hottest rank works on, for experts drawn from a power law.

    .. math:: x = \left((b^{1-\alpha} - a^{1-\alpha}) u + a^{1-\alpha}\right)^{1/(1-\alpha)}, \qquad u \sim U(0, 1)

    Each expert draws its popularity x between a = 1 and b = 0.8 tokens (0.01 and 2 where there are fewer rows than
    experts) and gets its share of all rows, in whole rows, but no more than there are tokens. The tables time the rank
    with the most rows and take the mean of five draws without a fixed seed: what one row of them had is not known.

    Parameters
    ----------
    exponent
        alpha. [-]
    tokens, top_k
        Tokens over all ranks, experts that each picks. [-]
    experts, ranks
        Experts, and ranks that they are spread over. [-]

    References
    ----------
    aiconfigurator-tables, the collector's ``power_law`` distribution
    """
    draw = np.random.default_rng(0).random((DRAWS, experts))
    power = 1 - exponent
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    popularity = ((high**power - low**power) * draw + low**power) ** (1 / power)
    rows = np.round(popularity / popularity.sum(axis=1, keepdims=True) * tokens * top_k)
    by_rank = np.minimum(rows, tokens).reshape(DRAWS, ranks, experts // ranks)
    hottest = by_rank[np.arange(DRAWS), by_rank.sum(axis=2).argmax(axis=1)]
    load = hottest.sum(axis=1) / (tokens * top_k / ranks)
    return Skew(
        float(load.mean()) if ranks > 1 else 1.0,
        float((hottest > 0).sum(axis=1).mean()),
        {high: float(np.ceil(hottest / high).sum(axis=1).mean()) for high in HEIGHTS},
    )
