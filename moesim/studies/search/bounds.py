"""A time that no run of a plan can beat, for all columns of a frame at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moesim.studies.search.frames import BusyRank, Frame
from moesim.studies.search.tables import Array, Tables

ROUNDING = 1e-9
"""Share by which a bound is lowered, so that sums in another order do not lift it above the run. [-]"""


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Seconds of the kinds of stages of a frame, for its columns. (kinds, n) [s]"""

    passing: Array
    work: Array | None
    lanes: tuple[Array, ...]


def step_bounds(frame: Frame, tables: Tables, places: np.ndarray) -> Array:
    r"""Lower bound of the step of each column. (n,) [s]

    .. math:: \max_r \big( \sum_{k < q_r} P_k + m \sum_{k \text{ on } r} (F_k + B_k) \big) + T

    As :meth:`moesim.timeline.schedule.Schedule.lower_bound`, with the sends that hold up a rank and with what follows
    the last backward, T; stages of one kind are counted instead of added. Where pairs are merged, a rank is busy as long
    as its longest lane, its forwards, or its backwards.

    Parameters
    ----------
    frame, tables
        The shape, and the prices of its kinds of stages.
    places
        Column of the tables for each column of the frame.
    """
    kinds = _kinds(frame, tables, places)
    share = frame.micro_batches / frame.plan.schedule.pipelines
    longest = np.zeros(frame.plan.shape)
    for rank in frame.busy:
        np.maximum(longest, _start(rank, kinds) + share * (_work(rank, kinds) + rank.sends), out=longest)
    return (longest + frame.tail) * (1 - ROUNDING)


def _kinds(frame: Frame, tables: Tables, places: np.ndarray) -> _Kinds:
    times, kinds = tables.times, tables.rows(frame.kinds)
    forward = times.forward[kinds][:, places]
    backward = times.backward[kinds][:, places]
    if frame.plan.schedule.splits:
        parts = times.split[0][kinds][:, places] + times.split[1][kinds][:, places]
        backward = np.minimum(backward, parts)
    passing = forward if frame.plan.schedule.splits else forward + backward
    if not frame.plan.strategy.overlap_ep:
        return _Kinds(passing, forward + backward, ())
    lanes = tuple(lane[kinds][:, places] for lane in times.lanes)
    return _Kinds(passing, None, (*lanes, forward, backward))


def _start(rank: BusyRank, kinds: _Kinds) -> Array:
    """Time before the first chunk of a rank and behind its last one, on the pipeline on which it is shorter. [s]"""
    found = [before @ kinds.passing + sent for before, sent in zip(rank.before, rank.sent_before, strict=True)]
    return np.asarray(np.minimum.reduce(found))


def _work(rank: BusyRank, kinds: _Kinds) -> Array:
    """Time that a micro-batch keeps a rank busy. [s]"""
    if kinds.work is not None:
        return np.asarray(rank.work @ kinds.work)
    return np.asarray(np.maximum.reduce([rank.work @ lane for lane in kinds.lanes]))
