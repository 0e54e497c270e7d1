"""The published matrix, and how far a derived one agrees with it. No derivation reads this."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moesim.base.errors import SpecError
from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.cells import Matrix
from moesim.matrix.methods import methods
from moesim.matrix.rule import BLANK, MINUS, PLUS, SIGNS
from moesim.spec.library import root

SOURCE = "olmo-core-report, figure 76"
COMPLEXITY = "Integration complexity"
"""The row that no quantity stands behind: the report's own judgement."""


def file() -> Path:
    """Where the published matrix is kept."""
    return root() / "scenarios" / "tables" / "published_matrix.csv"


def read(path: Path | None = None) -> dict[tuple[str, str], str]:
    """Published signs by method and bottleneck, as the report calls them."""
    path = path or file()
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            table = list(csv.DictReader(lines))
    except OSError as error:
        raise SpecError.single(str(path), "", f"cannot be read: {error.strerror}", "the published matrix") from None
    found = {
        (method, row["bottleneck"]): sign for row in table for method, sign in row.items() if method != "bottleneck"
    }
    wrong = sorted({sign for sign in found.values() if sign not in SIGNS})
    if wrong:
        raise SpecError.single(str(path), "", f"has the signs {', '.join(wrong)}", f"only {' '.join(SIGNS)}or nothing")
    return found


@dataclass(frozen=True)
class Difference:
    """A cell that differs: ``opposite``, ``missing`` (published, not derived), ``extra`` (the reverse) or ``other``."""

    method: str
    bottleneck: str
    published: str
    derived: str

    @property
    def kind(self) -> str:
        """How it differs."""
        if {self.published, self.derived} == {PLUS, MINUS}:
            return "opposite"
        if self.derived == BLANK:
            return "missing"
        return "extra" if self.published == BLANK else "other"


@dataclass(frozen=True)
class Agreement:
    """Cells of a derived matrix beside the published ones; the row of judgements is not among them."""

    equal: int
    cells: int
    equal_signs: int
    signs: int
    differences: tuple[Difference, ...]

    def count(self, kind: str) -> int:
        """Differences of a kind."""
        return sum(one.kind == kind for one in self.differences)

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        kinds = {kind: self.count(kind) for kind in ("opposite", "missing", "extra", "other")}
        listed = [vars(one) | {"kind": one.kind} for one in self.differences]
        return {
            "equal_cells": self.equal,
            "cells": self.cells,
            "equal_signs": self.equal_signs,
            "signs": self.signs,
            **kinds,
            "differences": listed,
            "source": SOURCE,
        }


def agreement(matrix: Matrix, published: Mapping[tuple[str, str], str]) -> Agreement:
    """Set a derived matrix beside the published one; methods and bottlenecks that it lacks are left out."""
    equal = cells = equal_signs = signs = 0
    differences = []
    for (method, row), cell in matrix.cells.items():
        key = (methods.get(method).title, bottlenecks.get(row).title)
        if key not in published:
            continue
        told = published[key]
        cells, signs = cells + 1, signs + (told != BLANK)
        if told == cell.sign:
            equal, equal_signs = equal + 1, equal_signs + (told != BLANK)
        else:
            differences.append(Difference(method, row, told, cell.sign))
    return Agreement(equal, cells, equal_signs, signs, tuple(differences))


def complexity(published: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """The report's judgement of integration complexity, by method."""
    return {method: sign for (method, row), sign in published.items() if row == COMPLEXITY}
