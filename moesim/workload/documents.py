"""Documents of unequal length packed into sequences: attention stays inside a document.

The work of attention goes with the sum of squares of the lengths, so ranks with equal tokens have unequal work, and
the others wait for the one that has most. A document that is longer than a sequence is cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.model import mean_columns


@dataclass(frozen=True)
class Documents:
    """Lengths of documents: log-normal with a mean and a coefficient of variation, or ``points`` (length, share).

    Lengths in tokens; shares of the documents, which add up to one. [-]
    """

    mean: float
    variation: float = 0.0
    points: tuple[tuple[float, float], ...] = ()

    def moment(self, power: int, above: float = 0.0, up_to: float = math.inf) -> float:
        r"""E[l^k] over the documents of more than `above` and at most `up_to` tokens.

        .. math:: e^{k \mu + k^2 \sigma^2 / 2} [\Phi(z(up) - k \sigma) - \Phi(z(low) - k \sigma)]
        """
        points = self.points or (((self.mean, 1.0),) if not self.variation else ())
        if points:
            return sum(share * length**power for length, share in points if above < length <= up_to)
        variance = math.log(1 + self.variation**2)
        location, sigma = math.log(self.mean) - variance / 2, math.sqrt(variance)

        def below(length: float) -> float:
            if length in (0.0, math.inf):
                return float(length > 0)
            return 0.5 * math.erfc(-((math.log(length) - location) / sigma - power * sigma) / math.sqrt(2))

        return math.exp(power * location + power**2 * variance / 2) * (below(up_to) - below(above))

    def columns(self, length: int, window: int | None = None, chunk: int | None = None) -> float:
        """Keys that a causal query attends to on average in sequences of `length` tokens. [-]

        Half the mean square over the mean of the lengths for full attention; a window or chunk bounds them.
        """
        limit = min(length, window or length, chunk or length)
        seen = self.moment(2, 0.0, limit) / 2
        if window is not None and window < length:
            between = self.moment(1, limit, length), self.moment(0, limit, length)
            seen += window * between[0] - window**2 / 2 * between[1]
        elif limit < length:
            seen += limit / 2 * self.moment(1, limit, length)
        return (seen + mean_columns(length, window, chunk) * self.moment(1, length)) / self.moment(1)

    def hottest(self, tokens: Numeric, ranks: Numeric, limit: int) -> Numeric:
        r"""Attention of the busiest of n ranks that hold as many tokens each, over the mean. [-]

        .. math:: 1 + \sqrt{2 \ln n} \, \sqrt{E[(w - c l)^2] / N} / E[w], \qquad w = l^2 / 2, \; c = E[w] / E[l]

        N documents fill the tokens of a rank; n ranks have all of the work at most. Of normal variables the largest of
        n is about sqrt(2 ln n) deviations above the mean.

        Parameters
        ----------
        tokens, ranks
            Tokens of each rank; ranks that wait for each other. [-]
        limit
            Length beyond which a document counts as several: of a sequence, or of a window. [-]
        """
        whole = self.moment(1, limit)
        lengths, squares = self.moment(1), self.moment(2, 0.0, limit) + whole * limit
        cubes, fourths = self.moment(3, 0.0, limit) + whole * limit**2, self.moment(4, 0.0, limit) + whole * limit**3
        per_token = squares / lengths
        variance = max(fourths - 2 * per_token * cubes + per_token**2 * squares, 0.0)
        deviation = math.sqrt(variance) / squares / np.sqrt(tokens / lengths)
        bounded: Numeric = np.minimum(1 + deviation * np.sqrt(2 * np.log(ranks)), ranks)
        return bounded
