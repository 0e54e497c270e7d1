"""Fits of factors to whole steps, and what steps are off beyond their prices: each group judged by the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.calibrate.fit import Parameter, fitted, soft
from moesim.spec.calibration import NORMAL_95

Floats = NDArray[np.floating[Any]]
Names = NDArray[np.str_]

NOISE = 0.08
"""Spread of the logarithm of a good step: the same layout on the same GPUs differs by 8 % between two teams. [-]"""
FEWEST_ROWS, FEWEST_GROUPS = 8, 3
"""Rows, and groups of a model on a GPU, from which a family is fitted. Assumed."""
INSIDE = 0.9
"""Share of the steps that an interval is to hold. [-]"""


@dataclass(frozen=True)
class Linear:
    """Steps near a point in the logarithms of the factors.

    ``log_steps``: logarithm of the step of each row at ``point``; ``slopes``: its derivative by the logarithm of each
    factor; ``measured``: [s]; ``groups``: what must not be torn apart.
    """

    log_steps: Floats
    slopes: Floats
    point: Floats
    measured: Floats
    groups: Names

    def rows(self, chosen: NDArray[np.bool_]) -> Linear:
        """The same for some rows."""
        return Linear(
            self.log_steps[chosen], self.slopes[chosen], self.point, self.measured[chosen], self.groups[chosen]
        )


def fit_steps(near: Linear, parameters: Sequence[Parameter], what: str = "steps") -> dict[str, float]:
    r"""Factors that bring predicted steps to the measured ones.

    Loss, priors and bounds are those of :func:`moesim.calibrate.fit.fitted`. A row of a group of n counts
    :math:`1/\sqrt{n}`, so that a sweep over one model does not decide for all.

    Parameters
    ----------
    near
        Steps as they depend on the factors, to first order.
    parameters
        Factors, prior 1, in the order of their importance.
    """
    weights = _weights(near.groups)

    def predict(values: Mapping[str, float]) -> Floats:
        place = np.log([values[one.name] for one in parameters])
        return np.asarray(np.exp(near.log_steps + near.slopes @ (place - near.point)))

    return fitted(predict, near.measured, parameters, what=what, noise=NOISE, starts=1, weights=weights).values


def _weights(groups: Names) -> Floats:
    """What each row counts. [-]"""
    _, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(counts[places] ** -0.5)


def loss(log_errors: Floats, groups: Names) -> float:
    """What a fit makes small, of errors that it made or has not seen: the soft L1 loss of its rows, on average. [-]"""
    return float(np.average(soft(log_errors / NOISE) ** 2, weights=_weights(groups)))


def without_each(near: Linear, parameters: Sequence[Parameter]) -> dict[str, dict[str, float]]:
    """Factors fitted without each group, by its name."""
    return {
        str(name): fit_steps(near.rows(near.groups != name), parameters, f"steps without {name}")
        for name in np.unique(near.groups)
    }


def can_be_fitted(groups: Names) -> bool:
    """Whether there are rows and groups enough to fit some and judge by the others."""
    largest = np.unique(groups, return_counts=True)[1].max(initial=0)
    return len(np.unique(groups)) >= FEWEST_GROUPS and len(groups) - largest >= FEWEST_ROWS


def step_error(log_errors: Floats, variances: Floats) -> float:
    r"""Standard error of the logarithm of a step beyond that of its prices. [-]

    The smallest :math:`\sigma` for which the intervals of 90 % hold as many of the rows:

    .. math:: Q_{0.9} \frac{|e_i|}{\sqrt{v_i + \sigma^2}} = 1.645

    The quantile is taken a row higher than the share, as for a row that is not among them.

    Parameters
    ----------
    log_errors
        Logarithm of predicted over measured step, e. [-]
    variances
        Variance of the logarithm from prices, constants and fields that nobody gave, v. [-]
    """
    share = min(INSIDE * (1 + 1 / len(log_errors)), 1.0)

    def reach(sigma: float) -> float:
        ratio = np.abs(log_errors) / np.sqrt(np.maximum(variances + sigma**2, 1e-12))
        return float(np.quantile(ratio, share, method="inverted_cdf"))

    low, high = 0.0, float(np.max(np.abs(log_errors))) + 1e-9
    if reach(low) <= NORMAL_95:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if reach(middle) > NORMAL_95 else (low, middle)
    return high


def errors_without_each(log_errors: Floats, variances: Floats, kinds: Names, groups: Names) -> dict[str, float]:
    """Standard error of a step for each group, from the other groups of its kind, or of all kinds where those are few. [-]"""
    found: dict[str, float] = {}
    for name in np.unique(groups):
        chosen = spread_rows(kinds, groups, str(kinds[groups == name][0]), str(name))
        found[str(name)] = step_error(log_errors[chosen], variances[chosen])
    return found


def spread_rows(kinds: Names, groups: Names, kind: str, without: str = "") -> NDArray[np.bool_]:
    """Rows that tell how far steps of a kind are off: of the kind, or all where those are few; without one group."""
    others = groups != without
    alike = others & (kinds == kind)
    enough = len(np.unique(groups[alike])) >= FEWEST_GROUPS and alike.sum() >= FEWEST_ROWS
    return np.asarray(alike if enough else others)
