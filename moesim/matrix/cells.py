"""Cells and what they follow from; how samples become a sign."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.rule import BLANK, Vote, of_pairs, of_ways, vote

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A quantity with and without a method in the scenarios of one situation.

    ``signs`` as :func:`moesim.matrix.rule.compare` gives them; terms by name. Of ``legal`` scenarios only.
    """

    situation: str
    on: FloatArray
    off: FloatArray
    signs: NDArray[np.int64]
    on_terms: dict[str, FloatArray]
    off_terms: dict[str, FloatArray]
    tie: tuple[FloatArray, FloatArray] | None = None


@dataclass(frozen=True)
class Way:
    """One way to have a method, against one thing."""

    knob: str
    vote: Vote
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Against:
    """A method against one thing, in all ways."""

    against: str
    sign: str
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Cell:
    """What a method does to a bottleneck: the sign, and all that it follows from."""

    method: str
    bottleneck: str
    sign: str
    against: tuple[Against, ...]

    @property
    def ratios(self) -> FloatArray:
        """With over without in all scenarios that count and have any without. [-]"""
        found = [
            sample.on[sample.off > 0] / sample.off[sample.off > 0]
            for one in self.against
            for way in one.ways
            for sample in way.samples
        ]
        return np.concatenate([*found, np.zeros(0)])

    @property
    def possible(self) -> bool:
        """Whether any scenario could have the method."""
        return any(way.samples for one in self.against for way in one.ways)


@dataclass(frozen=True)
class Matrix:
    """Cells by method and bottleneck, in the order of the report."""

    methods: tuple[str, ...]
    bottlenecks: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    scenarios: int

    def sign(self, method: str, bottleneck: str) -> str:
        """Sign of a cell."""
        return self.cells[method, bottleneck].sign


Samples = Sequence[tuple[str, Sequence[tuple[str, Sequence[Sample]]]]]
"""By what the method is set against, and by the way to have it."""


def decided(method: str, row: str, told: Samples) -> Cell:
    """The cell that samples make: the same for every method and bottleneck."""
    absent = BLANK if bottlenecks.get(row).absent == "same" else None
    found = []
    for against, several in told:
        ways = tuple(
            Way(knob, vote((one.signs for one in samples), absent), tuple(samples)) for knob, samples in several
        )
        found.append(Against(against, of_ways(way.vote for way in ways), ways))
    return Cell(method, row, of_pairs(one.sign for one in found), tuple(found))


def restricted(matrix: Matrix, situations: Collection[str]) -> Matrix:
    """The matrix that some of its situations make."""
    cells = {}
    for key, cell in matrix.cells.items():
        told = [
            (
                one.against,
                [(way.knob, [sample for sample in way.samples if sample.situation in situations]) for way in one.ways],
            )
            for one in cell.against
        ]
        cells[key] = decided(cell.method, cell.bottleneck, told)
    return Matrix(matrix.methods, matrix.bottlenecks, cells, matrix.scenarios)
