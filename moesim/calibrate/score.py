"""How far predictions are off: errors of time, and how often an interval holds the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from moesim.spec.calibration import NORMAL_95

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Spread:
    """Residuals of one regime: quantiles of the logarithm of predicted over measured time. [-]"""

    count: int
    q05: float
    q50: float
    q95: float

    @property
    def sigma(self) -> float:
        """Standard deviation of a normal distribution with the same 90 % interval. [-]"""
        return (self.q95 - self.q05) / (2 * NORMAL_95)


@dataclass(frozen=True)
class Score:
    """Errors of predicted times. [-]

    ``median`` and ``p90`` of the absolute relative error, ``bias`` the median of the signed one, ``coverage`` the share
    of measurements inside their 90 % interval.
    """

    count: int
    median: float
    p90: float
    bias: float
    coverage: float | None = None


def score(predicted: Floats, measured: Floats, low: Floats | None = None, high: Floats | None = None) -> Score:
    """Errors of predictions against measured times. [s]"""
    error = np.asarray(predicted) / np.asarray(measured) - 1
    if not len(error):
        return Score(0, np.nan, np.nan, np.nan)
    inside = None if low is None or high is None else float(np.mean((low <= measured) & (measured <= high)))
    size = np.abs(error)
    median, p90 = (float(value) for value in np.quantile(size, [0.5, 0.9]))
    return Score(len(error), median, p90, float(np.median(error)), inside)


def spreads(log_errors: Floats, regimes: NDArray[Any]) -> dict[str, Spread]:
    """Residual quantiles of each regime that has at least 10 rows, and of ``all``."""
    found = {}
    for name in ("all", *sorted(set(regimes.tolist()))):
        chosen = log_errors if name == "all" else log_errors[regimes == name]
        if len(chosen) >= 10 or name == "all":
            low, middle, high = (float(value) for value in np.quantile(chosen, [0.05, 0.5, 0.95]))
            found[str(name)] = Spread(len(chosen), low, middle, high)
    return found


class Quantiles(Protocol):
    """Anything with the ends of a 90 % interval of the logarithm of predicted over measured time."""

    @property
    def q05(self) -> float:
        """5 % quantile. [-]"""

    @property
    def q95(self) -> float:
        """95 % quantile. [-]"""


def interval(predicted: Floats, regimes: NDArray[Any], known: Mapping[str, Quantiles]) -> tuple[Floats, Floats]:
    """Bounds of the 90 % intervals, ``t exp(-q95)`` and ``t exp(-q05)``: the quantiles are those of predicted over measured."""
    low, high = np.empty(len(predicted)), np.empty(len(predicted))
    for name in set(regimes.tolist()):
        spread, rows = known.get(name, known["all"]), regimes == name
        low[rows] = predicted[rows] * np.exp(-spread.q95)
        high[rows] = predicted[rows] * np.exp(-spread.q05)
    return low, high
