"""Quantities at the boundary: text with a unit in files and options, SI floats inside.

Bandwidth is per direction in B/s, compute is dense FLOP/s. A bare number is refused with an example, since
``400`` says neither Gb/s nor GB/s. Binary prefixes (``64 GiB``) and SI prefixes (``3.35 TB/s``) are both read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from quantiphy import InvalidNumber, Quantity


@dataclass(frozen=True)
class Dimension:
    """A kind of quantity: the spellings of its unit with their size in SI, and an example for messages."""

    name: str
    si: str
    units: dict[str, float]
    example: str


_BYTES = {"B": 1.0, "byte": 1.0, "bytes": 1.0}
_BYTE_RATES = {f"{unit}/s": 1.0 for unit in _BYTES}
_BIT_RATES = {"b/s": 0.125, "bit/s": 0.125, "bps": 0.125}
_FLOP_RATES = dict.fromkeys(["FLOP/s", "flop/s", "FLOPs/s", "FLOPS", "FLOPs", "flops"], 1.0)
_DIMENSIONS = [
    Dimension("bytes", "B", _BYTES, "80 GiB"),
    Dimension("bandwidth", "B/s", {**_BYTE_RATES, **_BIT_RATES}, "400 Gb/s"),
    Dimension("flop_rate", "FLOP/s", _FLOP_RATES, "989 TFLOP/s"),
    Dimension("flop", "FLOP", {"FLOP": 1.0, "flop": 1.0}, "100 GFLOP"),
    Dimension("time", "s", {"s": 1.0, "sec": 1.0}, "14 us"),
    Dimension("power", "W", {"W": 1.0}, "700 W"),
    Dimension("flop_energy", "J/FLOP", {"J/FLOP": 1.0}, "0.8 pJ/FLOP"),
    Dimension("byte_energy", "J/B", {"J/B": 1.0}, "50 pJ/B"),
    Dimension("frequency", "Hz", {"Hz": 1.0}, "1.98 GHz"),
    Dimension("money", "USD", {"USD": 1.0, "$": 1.0}, "2 USD"),
]
DIMENSIONS: dict[str, Dimension] = {dimension.name: dimension for dimension in _DIMENSIONS}

_LONG_UNITS = {"min": 60.0, "h": 3600.0, "d": 86400.0}
_LONG_TIMES = re.compile(r"([-+.\deE]+) ?(min|h|d)")
"""Times of more than a second have no SI prefix."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str, dimension: str, example: str = "") -> float:
    """Return a quantity as an SI float.

    Parameters
    ----------
    text
        Number and unit, such as ``400 Gb/s``.
    dimension
        One of :data:`DIMENSIONS`.
    example
        What to write, for messages; that of the dimension where it is left out.

    Raises
    ------
    ValueError
        If the text is no number, has no unit, or has the unit of something else.

    Examples
    --------
    >>> parse_quantity("400 Gb/s", "bandwidth")
    50000000000.0
    >>> parse_quantity("81559 MiB", "bytes")
    85520809984.0
    >>> parse_quantity("10 min", "time"), parse_quantity("50000h", "time"), parse_quantity("3 ms", "time")
    (600.0, 180000000.0, 0.003)
    >>> parse_quantity("400", "bandwidth")
    Traceback (most recent call last):
    ValueError: '400' has no unit; write for example '400 Gb/s'
    """
    kind = DIMENSIONS[dimension]
    hint = f"write for example '{example or kind.example}'"
    if dimension == "time" and (long := _LONG_TIMES.fullmatch(text.strip())) and _number(long[1]) is not None:
        return float(long[1]) * _LONG_UNITS[long[2]]
    try:
        quantity = Quantity(text.strip(), binary=True)
    except InvalidNumber:
        raise ValueError(f"'{text}' is not a quantity; {hint}") from None
    if not quantity.units:
        if _number(text) is None:
            raise ValueError(f"'{text}' has a prefix but no unit; {hint}")
        raise ValueError(f"'{text}' has no unit; {hint}")
    if quantity.units not in kind.units:
        raise ValueError(f"'{text}' is not {_article(dimension)} [{kind.si}]; {hint}")
    value = float(quantity) * kind.units[quantity.units]
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not finite; {hint}")
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _article(dimension: str) -> str:
    return {"bytes": "a number of bytes", "flop": "a number of FLOP", "money": "an amount of money"}.get(
        dimension, f"a {dimension.replace('_', ' ')}"
    )


_SI_PREFIXES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E", 21: "Z", 24: "Y"}
_BINARY_PREFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi"]


def format_quantity(value: float, dimension: str, digits: int = 4) -> str:
    """Return a quantity as people read it; bytes in binary prefixes, everything else in SI prefixes.

    Examples
    --------
    >>> format_quantity(0.0413, "time"), format_quantity(85520809984.0, "bytes"), format_quantity(245.1e12, "flop_rate")
    ('41.3 ms', '79.65 GiB', '245.1 TFLOP/s')
    """
    unit = DIMENSIONS[dimension].si
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    if dimension == "bytes":
        order = min(max(int(math.log2(abs(value)) // 10), 0), len(_BINARY_PREFIXES) - 1)
        return f"{_round(value / 1024.0**order, digits)} {_BINARY_PREFIXES[order]}{unit}"
    exponent = min(max(3 * math.floor(math.log10(abs(value)) / 3), -9), 24)
    mantissa = _round(value / 10.0**exponent, digits)
    if mantissa.lstrip("-") == "1000" and exponent < 24:
        exponent += 3
        mantissa = _round(value / 10.0**exponent, digits)
    return f"{mantissa} {_SI_PREFIXES[exponent]}{unit}"


def _round(value: float, digits: int) -> str:
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
