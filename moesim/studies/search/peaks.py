"""Peak memory of columns of a frame: the formulas of an estimate, on the ranks that may have the peak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.memory import RankState, Transient, rank_phases, total, transients
from moesim.studies.search.frames import Frame, Held
from moesim.studies.search.tables import ACTIVATIONS, LOGITS, WAITING, Array, Tables, wide

Places = NDArray[np.int64]


def peak_bytes(frame: Frame, tables: Tables, places: Places, columns: Places) -> Array:
    """Peak of the largest rank of some columns. (n,) [B]

    Parameters
    ----------
    frame, tables
        The shape, and what its kinds of stages keep.
    places
        Column of the tables for each column of the frame.
    columns
        Columns of the frame that are asked for, ascending. (n,)
    """
    taken = _transient(frame, tables)
    kinds = tables.rows(frame.kinds)
    found = np.empty(len(columns))
    for held in frame.held:
        here = np.flatnonzero(np.isin(columns, held.columns, assume_unique=True))
        if len(here):
            own = columns[here]
            found[here] = _peaks(frame, tables, held, taken, kinds, (own, places[own]))
    return found


def _peaks(
    frame: Frame, tables: Tables, held: Held, taken: Transient, kinds: Places, which: tuple[Places, Places]
) -> Array:
    """Peaks of columns in which ranks hold the same; ``which``: the columns of the frame and of the tables."""
    own, places = which
    kept = tables.bytes[:, kinds[:, None], places]
    activations, logits, one = _at_peak(held, kept)
    states = frame.states
    rows = np.array([states.rows[rank.key] for rank in held.ranks])
    base, casts, update = (
        part[rows] if part.shape[1] == 1 else part[rows[:, None], own]
        for part in (states.base, states.casts, states.update)
    )
    buffers = {rank.in_flight: tables.transport(rank.in_flight)[places] for rank in held.ranks}
    transport = np.array([buffers[rank.in_flight] for rank in held.ranks])
    transient = Transient(*(_columns(part, tables, places) for part in vars(taken).values()))
    state = RankState({"weights": base}, casts, update, 0.0, ends=True)
    phases = rank_phases(frame.plan, state, transient, transport, (activations, logits, one))
    totals = [np.broadcast_to(total(classes), transport.shape) for classes in phases.values()]
    return np.asarray(np.maximum.reduce(totals).max(axis=0))


def _at_peak(held: Held, kept: Array) -> tuple[Array, Array, Array]:
    """Activations and logits of each rank where their sum is largest, and logits of one micro-batch. (ranks, n) [B]"""
    count = kept.shape[1]
    moments, starts = held.moments
    whole, waiting = moments[:, :count], moments[:, count:]
    sums = whole @ (kept[ACTIVATIONS] + kept[LOGITS])
    if waiting.any():
        sums += waiting @ kept[WAITING]
    most = np.maximum.reduceat(sums, starts, axis=0)
    logits, one = np.zeros_like(most), np.zeros_like(most)
    with_logits = kept[LOGITS].any(axis=1)
    for row, (rank, start) in enumerate(zip(held.ranks, starts.tolist(), strict=True)):
        if with_logits[list(rank.key)].any():
            end = start + len(rank.moments)
            place = start + np.argmax(sums[start:end], axis=0)
            logits[row] = np.einsum("nk,kn->n", whole[place], kept[LOGITS])
            one[row] = kept[LOGITS][list(rank.key)].max(axis=0)
    return most - logits, logits, one


def _columns(value: Numeric, tables: Tables, places: Places) -> Numeric:
    """A number of the tables in some of their columns."""
    return np.asarray(wide(value, tables.plan.shape)[places]) if np.ndim(value) else value


def _transient(frame: Frame, tables: Tables) -> Transient:
    """What the layer that runs takes; where it depends on all stages of a plan, worked out for them."""
    plan = frame.plan
    segments = any(policy.segments for policy in tables.plan.recompute)
    if segments or (plan.sharding.weights and not plan.strategy.reshard_after_forward):
        return transients(replace(tables.plan, stages=plan.stages), tables.blocks)
    return tables.transient
