"""Zipf's law: the expert of rank i is chosen in proportion to 1 / i^s."""

import numpy as np

from moesim.workload.routing import Popularity, Routing, exponent, routings


def zipf(argument: str, num_experts: int) -> Popularity:
    r"""Popularity of each expert, the hottest first. [-]

    .. math:: p_i \propto i^{-s}, \qquad i = 1 \ldots E
    """
    return np.arange(1, num_experts + 1, dtype=float) ** -exponent(argument, 0.0)


routings.add(
    "zipf",
    Routing(zipf, "an exponent s >= 0, such as zipf:0.5; 0 is balanced"),
    summary="zipf:s, popularity of the i-th expert falls as 1 / i^s.",
    source="zipf-law",
)
