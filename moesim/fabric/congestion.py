"""What hashing of flows onto parallel links costs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

DRAWS = 2000
"""Draws of the mean; its standard error is below 1 %. [-]"""


@lru_cache(maxsize=256)
def static_hash_efficiency(uplinks: int, flows_per_link: int) -> float:
    """Share of its up-links that a switch uses when flows are hashed onto them once and for all. [-]

    The slowest link decides, so it is the mean load over the greatest, averaged over random placements of equal flows.

    Parameters
    ----------
    uplinks
        Parallel links m of equal cost. [-]
    flows_per_link
        Flows over links, q; ``q m`` flows are placed. [-]

    References
    ----------
    ecmp-notes; the largest bin of balls thrown at random.

    Examples
    --------
    >>> round(static_hash_efficiency(32, 8), 2), static_hash_efficiency(1, 5)
    (0.56, 1.0)
    """
    random = np.random.default_rng(20_240_601)
    loads = random.multinomial(uplinks * flows_per_link, np.full(uplinks, 1 / uplinks), size=DRAWS)
    return float(np.mean(flows_per_link / loads.max(axis=1)))
