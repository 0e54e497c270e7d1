"""The answer of ``moesim matrix``: the derived cells, and the published ones beside them where there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moesim.base.display import Shown
from moesim.matrix import published
from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.cells import Cell, Matrix
from moesim.matrix.derive import derive
from moesim.matrix.methods import methods
from moesim.matrix.situation import Situation


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """A matrix, what was published, and how far they agree.

    ``own``: the scenario that was asked about; None for the ensemble, the only one that the published matrix speaks of.
    """

    matrix: Matrix
    own: str | None
    situations: tuple[str, ...]
    agreement: published.Agreement | None
    complexity: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Answer({len(self.matrix.methods)} methods against {len(self.matrix.bottlenecks)} bottlenecks)"

    def to_dict(self, evidence: bool = False) -> dict[str, Any]:
        """Plain values; with `evidence` every sample."""
        cells = [cell_dict(cell, evidence) for cell in self.matrix.cells.values()]
        return {
            "scenario": self.own,
            "scenarios": self.matrix.scenarios,
            "situations": list(self.situations),
            "methods": list(self.matrix.methods),
            "bottlenecks": list(self.matrix.bottlenecks),
            "cells": cells,
            "integration_complexity": dict(self.complexity) | {"source": published.SOURCE} if self.complexity else {},
            "agreement": None if self.agreement is None else self.agreement.to_dict(),
        }


def answer(
    situations: Sequence[Situation], columns: Sequence[str], rows: Sequence[str], own: str | None = None
) -> Answer:
    """Derive, then set beside what was published, if it is at hand."""
    matrix = derive(situations, columns, rows)
    told = published.read() if published.file().is_file() else {}
    judged = published.complexity(told)
    titles = {methods.get(name).title: name for name in columns}
    return Answer(
        matrix,
        own,
        tuple(one.name for one in situations),
        published.agreement(matrix, told) if told and own is None else None,
        {titles[title]: sign for title, sign in judged.items() if title in titles},
    )


def change(cell: Cell) -> dict[str, float] | None:
    """Median, least and largest quantity with over without, or, where there is none without, with; None where nothing is."""
    ratios = cell.ratios
    if not len(ratios):
        return None
    in_order = np.sort(ratios)
    middle = in_order[(len(in_order) - 1) // 2 : len(in_order) // 2 + 1]  # one or two; np.median would load numpy.ma
    return {"median": float(middle.mean()), "low": float(in_order[0]), "high": float(in_order[-1])}


def cell_dict(cell: Cell, evidence: bool) -> dict[str, Any]:
    """A cell as plain values."""
    row = bottlenecks.get(cell.bottleneck)
    found: dict[str, Any] = {
        "method": cell.method,
        "bottleneck": cell.bottleneck,
        "sign": cell.sign,
        "possible": cell.possible,
        "with_over_without": change(cell),
        "unit": row.unit,
    }
    if not evidence:
        return found
    return found | {
        "against": [
            {
                "against": one.against,
                "sign": one.sign,
                "ways": [
                    {
                        "way": way.knob,
                        "sign": way.vote.sign,
                        "less": way.vote.less,
                        "more": way.vote.more,
                        "scenarios": way.vote.count,
                        "samples": [
                            {
                                "situation": sample.situation,
                                "with": sample.on.tolist(),
                                "without": sample.off.tolist(),
                                "terms_with": {name: value.tolist() for name, value in sample.on_terms.items()},
                                "terms_without": {name: value.tolist() for name, value in sample.off_terms.items()},
                            }
                            for sample in way.samples
                        ],
                    }
                    for way in one.ways
                ],
            }
            for one in cell.against
        ]
    }
