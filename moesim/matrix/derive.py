"""The matrix: every method against every bottleneck, over all situations, by one rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.cost.pipeline import COMMUNICATION
from moesim.matrix.bottlenecks import Bottleneck, asked, bottlenecks, rows
from moesim.matrix.case import Case, Terms
from moesim.matrix.cells import Cell, FloatArray, Matrix, Sample, decided
from moesim.matrix.methods import Knob, Method, Pair, columns, methods
from moesim.matrix.rule import PRICED_TOLERANCE, TOLERANCE, compare
from moesim.matrix.situation import Situation

OWN = (*COMMUNICATION, "pcie")
"""Terms that count only where the method makes or changes their class of traffic."""


def derive(
    situations: Sequence[Situation], method_names: Sequence[str] | None = None, row_names: Sequence[str] | None = None
) -> Matrix:
    """Derive the cells of some methods and bottlenecks; left out, of the 20 methods and all bottlenecks."""
    chosen = tuple(columns() if method_names is None else method_names)
    names = tuple(rows() if row_names is None else row_names)
    cells = {}
    for name in chosen:
        for cell in _column(name, names, situations):
            cells[name, cell.bottleneck] = cell
    return Matrix(chosen, names, cells, sum(one.columns for one in situations))


def _column(name: str, names: Sequence[str], situations: Sequence[Situation]) -> list[Cell]:
    method = methods.get(name)
    told: dict[str, list[tuple[str, list[tuple[str, list[Sample]]]]]] = {row: [] for row in names}
    able = [one for one in situations if one.holds(method.needs)]
    for pair in method.pairs:
        answered = [row for row in names if not pair.families or bottlenecks.get(row).family in pair.families]
        for row in answered:
            told[row].append((pair.against, []))
        for knob in method.knobs:
            samples: dict[str, list[Sample]] = {row: [] for row in answered}
            for situation in able:
                wanted = [row for row in answered if asked(bottlenecks.get(row), situation.skewed)]
                for row, sample in _samples(method, pair, knob, situation, wanted):
                    samples[row].append(sample)
            for row in answered:
                told[row][-1][1].append((knob.name, samples[row]))
    return [decided(name, row, several) for row, several in told.items()]


def _samples(
    method: Method, pair: Pair, knob: Knob, situation: Situation, names: Sequence[str]
) -> list[tuple[str, Sample]]:
    both = {**pair.both, **knob.both}
    with_it, without = situation.case({**both, **pair.on, **knob.on}), situation.case({**both, **pair.off})
    if with_it is None or without is None:
        return []
    legal = np.broadcast_to(with_it[1] & without[1], situation.strategy.shape)
    if not legal.any():
        return []
    return [(row, _sample(method, bottlenecks.get(row), situation, with_it[0], without[0], legal)) for row in names]


def _sample(
    method: Method, row: Bottleneck, situation: Situation, on: Case, off: Case, legal: NDArray[np.bool_]
) -> Sample:
    shape = situation.strategy.shape
    kept = method.classes if row.by_class else None
    on_terms, off_terms = (_terms(case.read(row.read), kept, shape, legal) for case in (on, off))
    on_all, off_all = _sum(on_terms, legal), _sum(off_terms, legal)
    scale = None if row.scale is None else np.broadcast_to(row.scale(off), shape)[legal]
    signs = compare(on_all, off_all, scale, PRICED_TOLERANCE if row.priced else TOLERANCE)
    tie = None
    for reading in row.ties:
        if np.any(np.abs(signs) == 1):
            break
        with_it, without = (_sum(_terms(case.read(reading), method.classes, shape, legal), legal) for case in (on, off))
        tie, signs = (with_it, without), compare(with_it, without)
    return Sample(situation.name, on_all, off_all, signs, on_terms, off_terms, tie)


def _terms(terms: Terms, classes: Any, shape: tuple[int, ...], legal: NDArray[np.bool_]) -> dict[str, FloatArray]:
    """Terms that count, one entry for each legal scenario: of classes of traffic only the method's own."""
    own = {name: value for name, value in terms.items() if classes is None or name in classes or name not in OWN}
    plain = {name: value() if callable(value) else value for name, value in own.items()}
    return {name: np.broadcast_to(np.asarray(value, dtype=float), shape)[legal] for name, value in plain.items()}


def _sum(terms: dict[str, FloatArray], legal: NDArray[np.bool_]) -> FloatArray:
    return sum(terms.values(), np.zeros(int(legal.sum())))
