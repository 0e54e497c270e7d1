"""Peak memory of all columns of a frame: the formulas of an estimate, on the ranks that may have the peak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moesim.cost.memory import Transient, at_peak, rank_phases, total, transients
from moesim.studies.search.frames import Frame, HeldRank
from moesim.studies.search.tables import ACTIVATIONS, LOGITS, WAITING, Array, Tables, wide


def peak_bytes(frame: Frame, tables: Tables, places: np.ndarray) -> Array:
    """Peak of the largest rank of each column. (n,) [B]

    Parameters
    ----------
    frame, tables
        The shape, and what its kinds of stages keep.
    places
        Column of the tables for each column of the frame.
    """
    kept = tables.bytes[:, tables.rows(frame.kinds)][:, :, places]
    taken = _transient(frame, tables)
    found = np.zeros(frame.plan.shape)
    for held in frame.held:
        here = slice(None) if len(held.columns) == len(found) else held.columns
        for rank in held.ranks:
            found[here] = np.maximum(found[here], _rank(frame, tables, rank, kept[..., here], taken, places, here))
    return found


def _transient(frame: Frame, tables: Tables) -> Transient:
    """What the layer that runs takes; where it depends on all stages of a plan, worked out for them."""
    plan = frame.plan
    segments = any(policy.segments for policy in tables.plan.recompute)
    if segments or (plan.sharding.weights and not plan.strategy.reshard_after_forward):
        return transients(replace(tables.plan, stages=plan.stages), tables.blocks)
    return tables.transient


def _rank(
    frame: Frame, tables: Tables, rank: HeldRank, kept: Array, taken: Transient, places: np.ndarray,
    here: slice | np.ndarray,
) -> Array:  # fmt: skip
    shape = kept.shape[2:]

    def columns(value: object) -> Array:
        return np.asarray(wide(value, frame.plan.shape)[here])

    def of_table(value: object) -> Array:
        return np.asarray(wide(value, tables.plan.shape)[places][here])

    parts = [(kept[ACTIVATIONS, kind], kept[LOGITS, kind]) for kind in rank.kinds]
    parts += [(kept[WAITING, kind], 0.0) for kind in rank.kinds]
    activations, logits = at_peak(np.column_stack([rank.whole, rank.waiting]), parts, shape)
    own = np.maximum.reduce([kept[LOGITS, kind] for kind in rank.kinds])
    state = type(rank.state)(
        {name: columns(value) if np.ndim(value) else value for name, value in rank.state.base.items()},
        columns(rank.state.casts),
        columns(rank.state.update),
        0.0,
        rank.state.ends,
    )
    transient = Transient(of_table(taken.staging), of_table(taken.workspace), of_table(taken.unsharded))
    transport = tables.transport(rank.in_flight)[places][here]
    phases = rank_phases(frame.plan, state, transient, transport, (activations, logits, own))
    return np.asarray(np.max([wide(total(classes), shape) for classes in phases.values()], axis=0))
