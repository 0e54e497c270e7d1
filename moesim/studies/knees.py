"""Where a curve of costs over one quantity is best, and where it stops to pay."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.units import DIMENSIONS, parse_quantity

TOLERANCE = 0.05
"""What a value may cost more than the best one to count as good. [-]"""


@dataclass(frozen=True)
class Curve:
    """Costs over the values of an axis, each at the best of all others.

    ``costs``: infinite where nothing fits. ``plateau``: values around the optimum, without a gap, that cost at most
    :data:`TOLERANCE` more; ``knees``: its ends beyond which what fits costs more, none where values have no order.
    """

    name: str
    values: tuple[Any, ...]
    costs: tuple[float, ...]
    told: tuple[Mapping[str, Any], ...]
    optimum: Any
    plateau: tuple[Any, ...]
    knees: tuple[Any, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        best = min(self.costs)
        points = [
            {"value": plain_value(value), "cost_ratio": cost / best if math.isfinite(cost) else None} | dict(told)
            for value, cost, told in zip(self.values, self.costs, self.told, strict=True)
        ]
        return {
            "axis": self.name,
            "optimum": plain_value(self.optimum),
            "plateau": [plain_value(value) for value in self.plateau],
            "knees": [plain_value(value) for value in self.knees],
            "tolerance": TOLERANCE,
            "points": points,
        }


def curve(name: str, values: Sequence[Any], costs: Sequence[float], told: Sequence[Mapping[str, Any]]) -> Curve:
    """Return the curve of an axis in the order of its numbers, or as given where values are no numbers.

    Examples
    --------
    >>> found = curve("ep", [1, 2, 4, 8], [2.0, 1.2, 1.01, 1.0], [{}] * 4)
    >>> found.optimum, found.plateau, found.knees
    (8, (4, 8), (4,))
    """
    sizes = [number(value) for value in values]
    ordered = None not in sizes
    places = sorted(range(len(values)), key=lambda place: sizes[place] or 0.0) if ordered else range(len(values))
    values, costs = [values[place] for place in places], [costs[place] for place in places]
    told = [told[place] for place in places]
    least = min(costs)
    if not math.isfinite(least):
        return Curve(name, tuple(values), tuple(costs), tuple(told), None, (), ())
    best = costs.index(least)
    good = [cost <= least * (1 + TOLERANCE) for cost in costs]
    if not ordered:
        chosen = tuple(value for value, one in zip(values, good, strict=True) if one)
        return Curve(name, tuple(values), tuple(costs), tuple(told), values[best], chosen, ())
    first = last = best
    while first > 0 and good[first - 1]:
        first -= 1
    while last < len(good) - 1 and good[last + 1]:
        last += 1
    sides = [(first, costs[:first][-1:]), (last, costs[last + 1 :][:1])]
    knees = dict.fromkeys(place for place, beyond in sides if any(map(math.isfinite, beyond)))
    plateau = tuple(values[first : last + 1])
    ends = tuple(values[place] for place in knees)
    return Curve(name, tuple(values), tuple(costs), tuple(told), values[best], plateau, ends)


def number(value: Any) -> float | None:
    """Return the size of a value: a number, a quantity in SI units, a factor; None where it is none.

    Examples
    --------
    >>> number("16"), number("4 TB/s"), number("x0.5"), number("zipf:1.2"), number(True)
    (16.0, 4000000000000.0, 0.5, 1.2, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    text = re.sub(r"^(x|[a-z][-a-z0-9]*[:=])(?=[\d.])", "", value.strip())
    try:
        return float(text)
    except ValueError:
        pass
    for dimension in DIMENSIONS:
        try:
            return parse_quantity(text, dimension)
        except ValueError:
            continue
    return None


def plain_value(value: Any) -> Any:
    """A value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value
