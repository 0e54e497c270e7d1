"""Peak memory of all columns of a frame: the formulas of an estimate, on the ranks that may have the peak."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.memory import RankState, Transient, at_peak, rank_phases, total, transients
from moesim.studies.search.frames import Frame
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
    slots = _slots(frame, tables, kept, places)
    taken = _transient(frame, tables)
    transient = Transient(*(_columns(one, tables, places) for one in (taken.staging, taken.workspace, taken.unsharded)))
    found = np.zeros(frame.plan.shape)
    for slot in slots.values():
        peak = (slot.activations, slot.logits, slot.own)
        for classes in rank_phases(frame.plan, slot.state, transient, slot.transport, peak).values():
            np.maximum(found, total(classes), out=found)
    return found


@dataclass(eq=False)
class _Slot:
    """What ranks of the same stages keep at their fullest, in all columns of a frame. (n,) [B]"""

    state: RankState
    own: Array
    activations: Array
    logits: Array
    transport: Array


def _slots(frame: Frame, tables: Tables, kept: Array, places: np.ndarray) -> dict[tuple[int, int], _Slot]:
    """Ranks that may have the peak, those of columns that hold other numbers of chunks side by side."""
    shape = frame.plan.shape
    found: dict[tuple[int, int], _Slot] = {}
    for held in frame.held:
        here: slice | np.ndarray = slice(None) if len(held.columns) == shape[0] else held.columns
        some = kept[..., here]
        seen: dict[int, int] = {}
        for rank in held.ranks:
            number = seen[id(rank.state)] = seen.get(id(rank.state), -1) + 1
            key = (id(rank.state), number)
            if key not in found:
                own = np.maximum.reduce([kept[LOGITS, kind] for kind in rank.kinds])
                found[key] = _Slot(rank.state, own, *(np.zeros(shape) for _ in range(3)))
            slot = found[key]
            parts = [(some[ACTIVATIONS, kind], some[LOGITS, kind]) for kind in rank.kinds]
            counts = rank.whole
            if rank.waiting.any():
                parts += [(some[WAITING, kind], 0.0) for kind in rank.kinds]
                counts = np.column_stack([rank.whole, rank.waiting])
            slot.activations[here], slot.logits[here] = at_peak(counts, parts, some.shape[2:])
            slot.transport[here] = tables.transport(rank.in_flight)[places[here]]
    return found


def _columns(value: Numeric, tables: Tables, places: np.ndarray) -> Numeric:
    """A number of the tables in the columns of a frame."""
    return np.asarray(wide(value, tables.plan.shape)[places]) if np.ndim(value) else value


def _transient(frame: Frame, tables: Tables) -> Transient:
    """What the layer that runs takes; where it depends on all stages of a plan, worked out for them."""
    plan = frame.plan
    segments = any(policy.segments for policy in tables.plan.recompute)
    if segments or (plan.sharding.weights and not plan.strategy.reshard_after_forward):
        return transients(replace(tables.plan, stages=plan.stages), tables.blocks)
    return tables.transient
