"""How well the price of a kernel is known: by format, direction and kind, and by how far it is from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.certainty import GRADES, UNCALIBRATED, decades_beyond, widening
from moesim.cost.machine import Residuals
from moesim.spec.calibration import NORMAL_95


@dataclass(frozen=True)
class KernelCertainty:
    """Factors from prices to the ends of their 90 % intervals, grades, and what lowers the grades. [-]"""

    low: Numeric
    high: Numeric
    steps: Numeric
    why: tuple[str, ...] = ()

    @property
    def grades(self) -> list[str]:
        """Grade of each price: one below ``calibrated`` for every step."""
        first = GRADES.index("calibrated")
        return [GRADES[min(first + int(step), len(GRADES) - 1)] for step in np.atleast_1d(self.steps)]


def is_measured(known: Residuals, regime: str) -> bool:
    """Whether rows of the regime were measured; a calibration that tells none apart speaks for all."""
    return regime in known.quantiles or set(known.quantiles) == {"all"}


def spread(known: Residuals | None, regime: str) -> tuple[float, float]:
    """5 and 95 % quantile of the logarithm of predicted over measured time in a regime. [-]

    Where nobody measured its like, that of an uncalibrated price, or of all rows where that is wider.
    """
    low, middle, high = UNCALIBRATED.quantiles["all"]
    if known is None:
        return low, high
    if is_measured(known, regime):
        low, middle, high = known.quantiles[regime if regime in known.quantiles else "all"]
        return middle + known.stretch * (low - middle), middle + known.stretch * (high - middle)
    smallest, _, largest = known.quantiles["all"]
    return min(low, known.stretch * smallest), max(high, known.stretch * largest)


def kernel_sigma(known: Residuals, regime: str, quantities: Mapping[str, Numeric]) -> float:
    """Standard error of the logarithm of one price. [-]"""
    low, high = spread(known, regime)
    return float(widening(decades_beyond(known.covered, quantities))) * (high - low) / (2 * NORMAL_95)


def kernel_certainty(
    known: Residuals | None, regime: str, quantities: Mapping[str, Numeric], unlike: tuple[str, ...] = ()
) -> KernelCertainty:
    """How well prices of one regime are known.

    Parameters
    ----------
    known
        Residuals of the family on this GPU, if there are any.
    regime, quantities
        As :mod:`moesim.cost.regimes` tells them.
    unlike
        What else tells the kernel from all that were measured, in words.
    """
    if known is None:
        low, high = spread(None, regime)
        return KernelCertainty(np.exp(-high), np.exp(-low), 2.0, ("nobody measured this family on this GPU",))
    why = list(unlike)
    if not is_measured(known, regime):
        why.insert(0, f"no measurement of its kind ({regime})")
    low, high = spread(known, regime if not unlike else "")
    decades = decades_beyond(known.covered, quantities)
    wider = widening(decades)
    for name, value in quantities.items():
        least, most = known.covered.get(name, (-np.inf, np.inf))
        if np.ndim(value) == 0 and not least <= value <= most:
            why.append(f"{name} {value:.6g} is outside of the {least:.6g} to {most:.6g} that were measured")
    steps = 1.0 * bool(unlike or not is_measured(known, regime)) + (known.stretch > 1) + (np.asarray(decades) > 0)
    if known.stretch > 1:
        why.append("constants of another GPU")
    return KernelCertainty(np.exp(-wider * high), np.exp(-wider * low), steps, tuple(why))
