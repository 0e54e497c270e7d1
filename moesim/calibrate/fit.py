"""Robust fits of the constants of a price form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import SpecError

Floats = NDArray[np.floating[Any]]
Predict = Callable[[Mapping[str, float]], Floats]
"""Predicted times of the rows for the values of the parameters. [s]"""

ROWS_PER_PARAMETER = 3


@dataclass(frozen=True)
class Parameter:
    """One constant to be fitted.

    Attributes
    ----------
    name
        Name of the constant.
    prior
        Its value so far, and where one start begins. [any unit, more than 0]
    low, high
        Bounds of the fit. [as the prior]
    spread
        How far it may well be from the prior: standard deviation of the logarithm of the value. [-]
    dimension
        Key of :data:`moesim.base.units.DIMENSIONS`; empty for a plain number.
    """

    name: str
    prior: float
    low: float
    high: float
    spread: float = 0.5
    dimension: str = ""


@dataclass(frozen=True)
class Fit:
    """What a fit found.

    Attributes
    ----------
    values
        Constants by name, those kept at their prior too.
    free
        Names of those that the rows decided.
    log_errors
        Logarithm of predicted over measured time, one a row. [-]
    costs
        Value of the objective at the end of each start, best first.
    """

    values: dict[str, float]
    free: tuple[str, ...]
    log_errors: Floats
    costs: tuple[float, ...]


def fitted(
    predict: Predict,
    measured: Floats,
    parameters: Sequence[Parameter],
    *,
    what: str = "the fit",
    noise: float = 0.05,
    starts: int = 4,
    seed: int = 0,
    weights: Floats | None = None,
    fewest: int = 6,
    max_evaluations: int = 200,
    per_parameter: float = ROWS_PER_PARAMETER,
) -> Fit:
    r"""Fit of constants to measured times.

    .. math:: \min_p \sum_i w_i \rho\left(\frac{\log t_i(p) - \log y_i}{\sigma}\right)
              + \sum_j \left(\frac{\log p_j - \log p^0_j}{s_j}\right)^2, \qquad \rho(r) = 2 (\sqrt{1 + r^2} - 1)

    Errors of time count as ratios, outliers linearly (soft L1), and every constant is held by its prior: ten rows move
    the constants that they tell something about, ten thousand rows decide alone. With few rows only the first
    constants are free, one for every three rows; the others keep their prior.

    Parameters
    ----------
    predict
        Times of the rows for given constants. [s]
    measured
        Measured times, y. [s]
    parameters
        Constants in the order of their importance.
    what
        Name for messages.
    noise
        Spread of a good row, sigma, of the logarithm. [-]
    starts, seed
        Starts from the priors and from places drawn around them.
    weights
        Weight of each row, w; one each by default. [-]
    fewest
        Rows below which nothing is fitted.
    max_evaluations
        Evaluations that one start may take.
    per_parameter
        Rows that free one parameter.

    Raises
    ------
    SpecError
        Where there are too few rows or a time is not positive.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise SpecError.single(what, "", "scipy is not installed", "pip install 'moesim[measurements]'") from None

    measured = np.asarray(measured, dtype=float)
    if len(measured) < fewest:
        told = f"{len(measured)} usable row{'' if len(measured) == 1 else 's'} cannot hold {len(parameters)} parameters"
        raise SpecError.single(what, "", told, f"give at least {fewest}")
    if not np.all(np.isfinite(measured) & (measured > 0)):
        raise SpecError.single(what, "", "a measured time is not a positive number", "drop the row")
    free = list(parameters[: max(1, int(len(measured) // per_parameter))])
    kept = {one.name: one.prior for one in parameters}
    prior = np.log([one.prior for one in free])
    low, high = np.log([one.low for one in free]), np.log([one.high for one in free])
    spread = np.array([one.spread for one in free])
    root = np.sqrt(np.ones_like(measured) if weights is None else weights)

    def values(place: Floats) -> dict[str, float]:
        return kept | {one.name: float(np.exp(value)) for one, value in zip(free, place, strict=True)}

    def log_errors(place: Floats) -> Floats:
        return np.asarray(np.log(predict(values(place)) / measured))

    def residuals(place: Floats) -> Floats:
        return np.concatenate([root * soft(log_errors(place) / noise), (place - prior) / spread])

    draw = np.random.default_rng(seed)
    inside = [low + 1e-6 * (high - low), high - 1e-6 * (high - low)]
    found = []
    for start in range(starts):
        shift = draw.normal(size=len(free)) * np.minimum(spread, 0.5) * (start > 0)
        place = np.clip(prior + shift, *inside)
        solved = least_squares(residuals, place, bounds=(low, high), max_nfev=max_evaluations)
        found.append((float(solved.cost), solved.x))
    found.sort(key=lambda one: one[0])
    best = found[0][1]
    return Fit(values(best), tuple(one.name for one in free), log_errors(best), tuple(cost for cost, _ in found))


def soft(ratio: Floats) -> Floats:
    r"""Residual whose square is the soft L1 loss, :math:`2 (\sqrt{1 + r^2} - 1)`. [-]

    The priors beside the rows are to stay quadratic, so the loss is put into the residual.
    """
    return np.asarray(ratio * np.sqrt(2 / (1 + np.sqrt(1 + ratio**2))))
