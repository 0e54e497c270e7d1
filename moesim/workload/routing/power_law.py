"""Popularity drawn from a power law, as the tables of fused MoE kernels are measured with."""

import numpy as np

from moesim.workload.routing import Popularity, Routing, exponent, routings

LARGEST = 1000.0
"""Most popular over least popular that can be drawn. [-]"""


def power_law(argument: str, num_experts: int) -> Popularity:
    r"""Quantiles of the law, the hottest first. [-]

    .. math:: p(x) \propto x^{-a}, \quad 1 \le x \le b, \qquad
              x(u) = \left((b^{1-a} - 1) u + 1\right)^{1/(1-a)}, \quad u = (i - 1/2) / E

    Quantiles in place of draws, so that the answer has no noise.

    References
    ----------
    aiconfigurator-tables, the collector's ``power_law`` distribution
    """
    power = 1 - exponent(argument, 0.0)
    place = (np.arange(num_experts, 0, -1) - 0.5) / num_experts
    if abs(power) < 1e-9:
        return np.asarray(LARGEST**place, dtype=float)
    return np.asarray(((LARGEST**power - 1) * place + 1) ** (1 / power), dtype=float)


routings.add(
    "power-law",
    Routing(power_law, "an exponent a >= 0, such as power-law:1.2"),
    summary="power-law:a, popularity spread over 1 to 1000 with density x^-a.",
    source="aiconfigurator-tables",
)
