"""Sets of intervals in integer nanoseconds: unions and how long they are, exactly."""

from __future__ import annotations

import numpy as np

from moesim.traces.event_table import Ints


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Disjoint intervals that cover the same time, sorted. [ns]

    Examples
    --------
    >>> [one.tolist() for one in union(np.array([5, 0, 1]), np.array([7, 2, 3]))]
    [[0, 5], [3, 7]]
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end) if len(end) else end
    fresh = np.ones(len(start), dtype=bool)
    fresh[1:] = start[1:] > reach[:-1]
    last = np.append(fresh[1:], True)[: len(start)]
    return start[fresh], reach[last]


def covered(start: Ints, end: Ints) -> int:
    """Time that at least one interval covers. [ns]

    Examples
    --------
    >>> covered(np.array([5, 0, 1]), np.array([7, 2, 3]))
    5
    """
    low, high = union(start, end)
    return int((high - low).sum())


def joined(*sets: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Union of sets of intervals. [ns]"""
    return union(np.concatenate([one[0] for one in sets]), np.concatenate([one[1] for one in sets]))


def span(intervals: tuple[Ints, Ints]) -> int:
    """Length of disjoint intervals. [ns]"""
    return int((intervals[1] - intervals[0]).sum())


def less(first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> int:
    """Time of a first set of intervals outside of a second. [ns]

    Examples
    --------
    >>> less((np.array([0]), np.array([10])), (np.array([2, 8]), np.array([4, 20])))
    6
    """
    return span(joined(first, second)) - span(second)
