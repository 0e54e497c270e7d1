"""The page on the matrix: every cell that differs is judged, and no judgement reaches the derivation."""

import csv
import re
from pathlib import Path

import pytest

from moesim.matrix.bottlenecks import bottlenecks, rows
from moesim.matrix.methods import columns, methods

DOCS = Path(__file__).parents[2] / "docs"
CAUSES = {"counted elsewhere", "baseline differs", "model too coarse"}


@pytest.fixture(scope="module")
def judgements():
    with (DOCS / "matrix_judgements.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_judgements_name_cells_and_causes(judgements):
    keys = [(row["method"], row["bottleneck"]) for row in judgements]
    assert len(set(keys)) == len(keys)
    assert {method for method, _ in keys} <= set(columns())
    assert {row for _, row in keys} <= set(rows())
    assert {row["cause"] for row in judgements} <= CAUSES
    assert all(len(row["judgement"]) > 40 for row in judgements)


def test_the_page_judges_every_difference_that_it_lists():
    page = (DOCS / "matrix.md").read_text()
    equal, cells = map(int, re.search(r"cells equal \| (\d+) of (\d+)", page).groups())
    listed = [line for line in page.splitlines() if any(f"| {cause} |" in line for cause in CAUSES)]
    assert len(listed) == cells - equal


def test_the_page_names_every_method_and_bottleneck():
    page = (DOCS / "matrix.md").read_text()
    assert all(f"`{name}`" in page for name in (*columns(second=True), *rows()))
    assert all(methods.get(name).title in page for name in columns(second=True))
    assert all(bottlenecks.get(name).title in page for name in rows())
