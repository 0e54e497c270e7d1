"""Routing skew of published tables: how many rows the hottest rank has where tokens follow a power law."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

DRAWS = 64


@lru_cache(maxsize=65536)
def power_law_load(exponent: float, tokens: int, experts: int, top_k: int, ranks: int) -> float:
    r"""Rows of the hottest rank over the mean, for experts drawn from a power law. [-]

    .. math:: x = \left((b^{1-\alpha} - a^{1-\alpha}) u + a^{1-\alpha}\right)^{1/(1-\alpha)}, \qquad u \sim U(0, 1)

    Each expert draws its popularity x between a = 1 and b = 0.8 tokens (0.01 and 2 where there are fewer rows than
    experts); no expert gets more rows than there are tokens. The median of many draws from a fixed seed.

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
    if ranks == 1:
        return 1.0
    draw = np.random.default_rng(0).random((DRAWS, experts))
    power = 1 - exponent
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    popularity = ((high**power - low**power) * draw + low**power) ** (1 / power)
    rows = popularity / popularity.sum(axis=1, keepdims=True) * tokens * top_k
    rows = np.minimum(rows, tokens)
    hottest = rows.reshape(DRAWS, ranks, experts // ranks).sum(axis=2).max(axis=1)
    return float(np.median(hottest) / (tokens * top_k / ranks))
