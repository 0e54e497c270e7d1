"""The second set of methods beside what first-order reasoning expects of it (docs/matrix_second.csv)."""

from __future__ import annotations

import csv
from pathlib import Path

from moesim.matrix.bottlenecks import bottlenecks
from moesim.matrix.cells import Matrix
from moesim.matrix.derive import derive
from moesim.matrix.ensemble import Ensemble, situations
from moesim.matrix.methods import columns, methods

EXPECTED = Path(__file__).parent / "matrix_second.csv"
INTRODUCTION = (
    "Methods around those of the figure (`moesim matrix --all`), beside signs that were written down from mechanism and "
    "first-order cost before the columns were. An expectation of a family of schedules is set beside each of them. "
    "Nothing else reads these expectations."
)


def second_matrix() -> Matrix:
    """The second set over the ensemble of the published question."""
    first = set(columns())
    return derive(situations(Ensemble()), [name for name in columns(second=True) if name not in first])


def expectations() -> list[dict[str, str]]:
    """Expected signs by methods and bottleneck, with a judgement where a derived sign differs."""
    with EXPECTED.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def second_set(matrix: Matrix) -> list[str]:
    """The section of the page.

    Raises
    ------
    SystemExit
        Where a difference has no judgement.
    """
    expected = expectations()
    differing = [row for row in expected if any(sign != row["expected"] for sign in _derived(matrix, row).values())]
    lacking = [f"{row['methods']}, {row['bottleneck']}" for row in differing if not row["judgement"]]
    if lacking:
        raise SystemExit(f"no judgement in {EXPECTED.name} for " + "; ".join(lacking))
    lines = [
        INTRODUCTION,
        "",
        f"{len(expected) - len(differing)} of {len(expected)} expectations hold in every column that they speak of. The others:",
        "",
        "| method | bottleneck | expected | derived | judgement |",
        "|---|---|:-:|---|---|",
    ]
    lines += [
        f"| {', '.join(methods.get(name).title for name in row['methods'].split())} | {bottlenecks.get(row['bottleneck']).title} "
        f"| {row['expected']} | {_signs(_derived(matrix, row))} | {row['judgement']} |"
        for row in differing
    ]
    return [*lines, ""]


def _derived(matrix: Matrix, row: dict[str, str]) -> dict[str, str]:
    return {name: matrix.sign(name, row["bottleneck"]) for name in row["methods"].split()}


def _signs(derived: dict[str, str]) -> str:
    """One sign where all columns say the same, else each with its columns."""
    by_sign: dict[str, list[str]] = {}
    for name, sign in derived.items():
        by_sign.setdefault(sign or "blank", []).append(name)
    if len(by_sign) == 1:
        return next(iter(by_sign))
    return "; ".join(f"{sign} {', '.join(names)}" for sign, names in by_sign.items())
