"""Which launch started a kernel, and which operator issued it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moesim.traces.event_table import GPU_WORK, KERNEL, LAUNCH, NONE, OP, EventTable, Ints


@dataclass(frozen=True, eq=False)
class Links:
    """Places of events by the GPU work that they belong to; -1 for none.

    Attributes
    ----------
    work
        Events that are GPU work.
    launch, op
        Launch of each, and the innermost operator that issued it. (len(work),)
    by_id
        Whether operators are found by their id; older files give kernels the correlation instead.
    """

    work: Ints
    launch: Ints
    op: Ints
    by_id: bool


def links(table: EventTable) -> Links:
    """Launches and operators of all GPU work of a file.

    Notes ----- In older files the external id of a kernel is its correlation: joined to the operators it gives
    nonsense, so the innermost operator around the launch on its thread is taken.
    """
    work = np.flatnonzero(table.of(*GPU_WORK))
    launches = np.flatnonzero(table.of(LAUNCH) & (table.correlation >= 0))
    launch = _matched(table, work, launches)
    ops = np.flatnonzero(table.of(OP))
    by_id = ids_are_operators(table)
    if by_id:
        known = ops[table.external[ops] >= 0]
        op = joined(table.external[work], table.external[known], known)
    else:
        op = np.full(len(work), NONE, dtype=np.int64)
        linked = launch >= 0
        op[linked] = enclosing(table, ops, launch[linked])
    return Links(work, launch, op, by_id)


def _matched(table: EventTable, work: Ints, launches: Ints) -> Ints:
    """Launch of each piece of work: correlations are unique in a process only where a file has several."""
    several = table.format == "nsys"
    size = np.int64(1) << 40
    process = (table.process.astype(np.int64) * size) if several else np.zeros(len(table), dtype=np.int64)
    keys = process + table.correlation
    found = joined(keys[work], keys[launches], launches)
    found[table.correlation[work] < 0] = NONE
    return found


def ids_are_operators(table: EventTable) -> bool:
    """Whether the external id of kernels is that of their operator: where some differ from the correlation."""
    both = table.of(KERNEL) & (table.external >= 0) & (table.correlation >= 0)
    return bool(both.any() and (table.external[both] != table.correlation[both]).any())


def joined(wanted: Ints, keys: Ints, places: Ints) -> Ints:
    """Place of the first of each wanted key; -1 where there is none.

    Examples
    --------
    >>> joined(np.array([7, 1, 3]), np.array([3, 7]), np.array([10, 20])).tolist()
    [20, -1, 10]
    """
    if not len(keys):
        return np.full(len(wanted), NONE, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted)
    at[at == len(keys)] = 0
    found = order[at]
    return np.where(keys[found] == wanted, places[found], NONE)


def enclosing(table: EventTable, outer: Ints, inner: Ints) -> Ints:
    """Innermost of the outer events that contains the start of each inner one on its thread; -1 for none."""
    found = np.full(len(inner), NONE, dtype=np.int64)
    line = table.process.astype(np.int64) << 32 | table.thread.astype(np.int64)
    for one in np.unique(line[inner]).tolist():
        here = outer[line[outer] == one]
        if not len(here):
            continue
        order = here[np.lexsort((-table.duration[here], table.start[here]))]
        asked = np.flatnonzero(line[inner] == one)
        times = table.start[inner[asked]]
        parents = _parents(table.start[order], table.end[order])
        at = np.searchsorted(table.start[order], times, side="right") - 1
        ends = table.end[order]
        open_ = np.flatnonzero(at >= 0)
        while len(open_):
            past = ends[at[open_]] < times[open_]
            at[open_[past]] = parents[at[open_[past]]]
            open_ = open_[past]
            open_ = open_[at[open_] >= 0]
        found[asked] = np.where(at >= 0, order[at], NONE)
    return found


def _parents(start: Ints, end: Ints) -> Ints:
    """Event around each one, of events sorted by start (the longer first); -1 for none."""
    parents = np.full(len(start), NONE, dtype=np.int64)
    stack: list[int] = []
    ends, starts = end.tolist(), start.tolist()
    for place, time in enumerate(starts):
        while stack and ends[stack[-1]] <= time and not (ends[stack[-1]] == time == ends[place]):
            stack.pop()
        if stack:
            parents[place] = stack[-1]
        stack.append(place)
    return parents
