"""Arguments of calls from Python: numbers that are what they should be, and lists that are lists, or one line that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from moesim.base.errors import SpecError


def number(call: str, name: str, value: Any, *, zero: bool = False, most: float = math.inf) -> float:
    """Return a finite number above zero.

    Parameters
    ----------
    call, name
        What was called, and its argument, for messages.
    value
        What was given.
    zero
        Whether zero will do as well.
    most
        The largest that will do.

    Raises
    ------
    SpecError
        Where it is none.

    Examples
    --------
    >>> number("budget", "goodput", 0.9, most=1)
    0.9
    >>> number("budget", "goodput", 2, most=1)
    Traceback (most recent call last):
    moesim.base.errors.SpecError: budget: goodput: 2 is out of range; more than 0, at most 1
    """
    least = "0 or more" if zero else "more than 0"
    legal = f"a finite number, {least}" if math.isinf(most) else f"{least}, at most {most:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SpecError.single(call, name, f"{value!r} is no number", legal)
    found = float(value)
    if not math.isfinite(found) or not 0 <= found <= most or (found == 0 and not zero):
        raise SpecError.single(call, name, f"{value} is out of range", legal)
    return found


def optional(call: str, name: str, value: Any, *, zero: bool = False, most: float = math.inf) -> float | None:
    """Return :func:`number`, or None where nothing was given."""
    return None if value is None else number(call, name, value, zero=zero, most=most)


def whole(call: str, name: str, value: Any) -> int:
    """Return a whole number, of whatever sign.

    Raises
    ------
    SpecError
        Where it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SpecError.single(call, name, f"{value!r} is no whole number", "write for example 4")
    return int(value)


def listed(call: str, name: str, value: Any) -> list[Any]:
    """Return what is in a list; neither a text nor a mapping is one.

    Raises
    ------
    SpecError
        Where it is none.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise SpecError.single(call, name, f"{value!r} is no list", f"write [{value!r}]")
    return list(value)


def mapped(call: str, name: str, value: Any) -> Mapping[Any, Any]:
    """Return what is a mapping.

    Raises
    ------
    SpecError
        Where it is none.
    """
    if not isinstance(value, Mapping):
        raise SpecError.single(call, name, f"{value!r} is no mapping", "write {PATH: ...}")
    return value


def axes(call: str, value: Any) -> None:
    """Refuse what is no mapping of names to lists of values, or to a text such as ``auto``.

    Raises
    ------
    SpecError
        Where it is none, with the name whose value is no list.
    """
    for path, values in mapped(call, "vary", value).items():
        if not isinstance(values, str):
            listed(call, f"vary[{path!r}]", values)
