"""Starts of tasks whose lengths are whole numbers: exact in whatever order they are added up, so lane by lane at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TURNS = 12
"""Turns over all lanes after which those that still change are left to a run task by task."""

Whole = NDArray[np.int64]


def whole_starts(lane: Whole, preds: Whole, length: Whole) -> Whole | None:
    r"""Start of each task, as a run would find it; None where lanes wait for each other in more turns. (n,)

    .. math:: e_k = \max(e_{k-1}, a_k) + l_k = L_k + \max(0, \max_{j \le k} (a_j - L_{j-1})), \qquad L_k = \sum_{j \le k} l_j

    for the tasks of a lane in their order, with the arrivals a of what they wait for. Lanes take turns until no end
    changes; a pipeline that is filled once settles in a few.

    Parameters
    ----------
    lane
        Lane of each task; a lane runs its tasks in the order in which they are given. (n,)
    preds
        Tasks waited for beside the one before on the lane, n for none. (n, k)
    length
        Whole lengths, from 0. (n,)
    """
    if not len(lane):
        return np.zeros(0, np.int64)
    by_lane = np.argsort(lane, kind="stable")
    lanes = []
    for tasks in np.split(by_lane, np.flatnonzero(np.diff(lane[by_lane])) + 1):
        through = np.cumsum(length[tasks])
        lanes.append((tasks, through - length[tasks], through, np.ascontiguousarray(preds[tasks].T)))
    end = np.zeros(len(lane) + 1, np.int64)
    for turn in range(TURNS):
        settled = True
        for tasks, before, through, waits in lanes if turn % 2 == 0 else reversed(lanes):
            late = end[waits].max(axis=0, initial=0) - before
            ends = np.maximum.accumulate(np.maximum(late, 0)) + through
            if (ends != end[tasks]).any():
                end[tasks], settled = ends, False
        if settled:
            return np.asarray(end[:-1] - length)
    return None
