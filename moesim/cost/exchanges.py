"""Reductions and gatherings at the ends of a step: which chunk each runs beside, and whom it keeps from the NIC.

The row of one is what does not hide behind the chunk beside it. What hides takes the NIC all the same: a gathering begins
when the one before it is done, and a reduction hides only where the one before it has left the NIC.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from moesim.base.numeric import Numeric
from moesim.timeline.step import StepGraph
from moesim.timeline.tasks import BW, KINDS, NIC, B, W

Place = tuple[str, int | tuple[int, int]]
"""A kind of task and where it runs, as in the rows of a step graph."""


@lru_cache(maxsize=64)
def windows(graph: StepGraph) -> dict[Place, tuple[str, int]]:
    """The chunk that each exchange runs beside: first forward of a stage for its gathering, last backward for the rest.

    A schedule may split the backward of some micro-batches only. None of the two is in a merged pair, whose forward comes
    behind that of an earlier micro-batch and before the backward of its own.
    """
    tasks, kinds = graph.tasks, graph.tasks.kind
    last = np.full(graph.num_stages, -1)
    backward = np.flatnonzero(np.isin(kinds, [BW, B, W]))
    np.maximum.at(last, tasks.stage[backward], backward)
    found: dict[Place, tuple[str, int]] = {}
    for stage, kind in enumerate(kinds[last].tolist()):
        found["gather", stage], found["reduce", stage] = ("F", stage), (KINDS[kind], stage)
    return found


@lru_cache(maxsize=64)
def carried(graph: StepGraph, stale: bool) -> tuple[tuple[Place, Place], ...]:
    """Exchanges of a rank that follow each other, and of which one waits for what of the other hides: (longer, hidden).

    Parameters
    ----------
    graph
        The step.
    stale
        Whether the reductions are those of the step before, which follow the gatherings at its start.
    """
    places = {row: place for place, row in graph.rows.items()}
    found: list[tuple[Place, Place]] = []
    for rank in range(graph.num_ranks):
        order = [places[row] for row in graph.graph.duration_row[graph.tasks_of(rank, NIC)].tolist()]
        for before, after in pairwise(order):
            if before[0] == "gather" and (after[0] == "gather" or stale):
                found.append((after, before))
            elif before[0] == after[0] == "reduce" and not stale:
                found.append((before, after))
    return tuple(found)


def behind(seconds: Numeric, chunk: Numeric, pieces: Numeric, share: Numeric) -> Numeric:
    r"""What is left of a reduction or gathering that runs piece by piece beside the chunk next to it. [s]

    .. math:: L + \sigma (T - L), \qquad L = \max(T / n, \; T - T_{chunk} (1 - 1 / n))

    The chunk counts with the time in which it leaves the NIC idle. With n layers or buckets, the reduction of one waits
    for its own backward only, so all but the last one's can hide behind the chunk; the gatherings of a forward mirror that.
    Pieces are taken as equal. What hides takes a share of the SMs from the kernels beside it, which take as much longer.

    Parameters
    ----------
    seconds, chunk
        The exchange alone, T; the chunk beside it. [s]
    pieces, share
        Pieces n, and the share of the SMs. [-]

    Notes
    -----
    A chunk that is longer by some time leaves less by no more than that: both together never end earlier.
    """
    left = np.maximum(seconds / pieces, seconds - chunk * (1 - 1 / pieces))
    return left + share * (seconds - left)
