"""The matrix: every method against every bottleneck, over all situations, by one rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.cost.pipeline import COMMUNICATION
from moesim.matrix.bottlenecks import Bottleneck, asked, bottlenecks, rows
from moesim.matrix.case import Case, Terms, run_together
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
    tried = {name: tuple(_trials(methods.get(name), names, situations)) for name in chosen}
    run_together(
        (case.step, case.choices.movement == "sent")
        for trials in tried.values()
        for trial in trials
        if trial.runs
        for case in (trial.on, trial.off)
    )
    cells = {}
    for name, trials in tried.items():
        for cell in _column(name, names, trials):
            cells[name, cell.bottleneck] = cell
    return Matrix(chosen, names, cells, sum(one.columns for one in situations))


@dataclass(frozen=True)
class _Trial:
    """A step with a method and the one without, in a situation where both are legal; the rows that are read off them."""

    method: Method
    pair: Pair
    knob: Knob
    situation: Situation
    rows: tuple[str, ...]
    on: Case
    off: Case
    legal: NDArray[np.bool_]

    @property
    def runs(self) -> bool:
        """Whether a row needs both steps to be run."""
        return any(set(bottlenecks.get(row).run) & set(self.method.classes) for row in self.rows)


def _trials(method: Method, names: Sequence[str], situations: Sequence[Situation]) -> Iterator[_Trial]:
    able = [one for one in situations if one.holds(method.needs)]
    for pair in method.pairs:
        for knob in method.knobs:
            both = {**pair.both, **knob.both}
            for situation in able:
                with_it = situation.case({**both, **pair.on, **knob.on})
                without = situation.case({**both, **pair.off})
                if with_it is None or without is None:
                    continue
                legal = np.broadcast_to(with_it[1] & without[1], situation.strategy.shape)
                wanted = (row for row in _answered(pair, names) if asked(bottlenecks.get(row), situation.skewed))
                if legal.any():
                    yield _Trial(method, pair, knob, situation, tuple(wanted), with_it[0], without[0], legal)


def _answered(pair: Pair, names: Sequence[str]) -> list[str]:
    """Rows that a pair answers."""
    return [row for row in names if not pair.families or bottlenecks.get(row).family in pair.families]


def _column(name: str, names: Sequence[str], trials: Sequence[_Trial]) -> list[Cell]:
    method = methods.get(name)
    told: dict[str, list[tuple[str, list[tuple[str, list[Sample]]]]]] = {row: [] for row in names}
    for pair in method.pairs:
        answered = _answered(pair, names)
        for row in answered:
            told[row].append((pair.against, []))
        for knob in method.knobs:
            samples: dict[str, list[Sample]] = {row: [] for row in answered}
            for trial in trials:
                if trial.pair is pair and trial.knob is knob:
                    for row in trial.rows:
                        samples[row].append(_sample(trial, bottlenecks.get(row)))
            for row in answered:
                told[row][-1][1].append((knob.name, samples[row]))
    return [decided(name, row, several) for row, several in told.items()]


def _sample(trial: _Trial, row: Bottleneck) -> Sample:
    method, situation, on, off, legal = trial.method, trial.situation, trial.on, trial.off, trial.legal
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
    found = {}
    for name, value in plain.items():
        columns = np.empty(shape)
        columns[...] = value
        found[name] = columns[legal]
    return found


def _sum(terms: dict[str, FloatArray], legal: NDArray[np.bool_]) -> FloatArray:
    return sum(terms.values(), np.zeros(np.count_nonzero(legal)))
