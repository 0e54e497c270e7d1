"""Times of events as integer nanoseconds, and which of them cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from moesim.traces.damage import Damage
from moesim.traces.event_table import NONE, Ints, Mask

WEEK = 7 * 86400 * 10**9
"""Duration, or distance to the other events, that nothing has. [ns]"""
EXACT = 2.0**43
"""Microseconds below which a float tells nanoseconds apart. [us]"""
MISSING = -(2**63)
"""Nanoseconds of a time that is none."""
LARGEST = 2**62
ZERO, NO_TIME = "start and duration are zero", "no start or no duration"
NEGATIVE, HUGE, FAR = "negative duration", "duration of more than a week", "start more than a week from the others"
BIG_ID = "id beyond 64 bits"


def nanoseconds(times: Sequence[Any]) -> Ints:
    """Whole nanoseconds of microseconds; `MISSING` for what is no time.

    Examples
    --------
    >>> nanoseconds([1712195495502094, 2.5, Decimal("1712195495502094.523"), "1.25", None]).tolist()[:4]
    [1712195495502094000, 2500, 1712195495502094523, 1250]
    """
    kinds = set(map(type, times))
    if kinds <= {int, float}:
        array = np.array(times, dtype=np.float64) if kinds != {int} else _integers(times)
        if array.dtype.kind == "i" and (abs(array) < 2**52).all():
            return np.asarray(array * 1000, dtype=np.int64)
        if array.dtype.kind == "f" and (abs(array) < EXACT).all():
            whole = np.floor(array)
            return np.asarray(whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000).astype(np.int64))
    return np.array([_exact(one) for one in times], dtype=np.int64)


def _integers(times: Sequence[int]) -> Any:
    try:
        return np.array(times, dtype=np.int64)
    except OverflowError:
        return np.array(times, dtype=np.float64)


def _exact(time: Any) -> int:
    try:
        found = Decimal(time) * 1000
        return int(found.to_integral_value()) if abs(found) < LARGEST else LARGEST if found > 0 else -LARGEST
    except (InvalidOperation, ValueError, TypeError):
        return MISSING


def doubtful(start: Ints, duration: Ints, damage: Damage) -> Mask:
    """Events whose times cannot be, counted by what is wrong."""
    bad = np.zeros(len(start), dtype=bool)
    for what, wrong in (
        (NO_TIME, (start == MISSING) | (duration == MISSING)),
        (NEGATIVE, duration < 0),
        (HUGE, duration > WEEK),
        (ZERO, (start == 0) & (duration == 0)),
        (FAR, np.abs(start) >= LARGEST),
    ):
        damage.note(what, count=int((wrong & ~bad).sum()))
        bad |= wrong
    return bad


def far_away(start: Ints, work: Mask) -> Mask:
    """Events that begin more than a week before or after the middle one of the GPU's (of all, where it has none)."""
    told = start[work] if work.any() else start
    if not len(told):
        return np.zeros(len(start), dtype=bool)
    middle = np.partition(told, len(told) // 2)[len(told) // 2]
    return np.asarray(np.abs(start - middle) > WEEK)


def ids(values: Sequence[Any], damage: Damage) -> Ints:
    """Ids as 64-bit integers; -1 for what is none."""
    plain = [NONE if one is None else one for one in values]
    try:
        return np.array(plain, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        damage.note(BIG_ID, count=sum(isinstance(one, int) and abs(one) >= 2**63 for one in plain))
        return np.array([whole(one) for one in plain], dtype=np.int64)


def whole(value: Any) -> int:
    """Whole number in a value; -1 for none.

    Examples
    --------
    >>> whole("7"), whole(None), whole(2**70)
    (7, -1, -1)
    """
    try:
        found = int(value)
    except (ValueError, TypeError, OverflowError):
        return NONE
    return found if abs(found) < 2**63 else NONE
