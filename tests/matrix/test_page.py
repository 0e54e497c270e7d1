"""The page on the matrix: every cell that differs is judged, and no judgement reaches the derivation."""

import csv
import re
from pathlib import Path

import pytest

from moesim.matrix.bottlenecks import bottlenecks, rows
from moesim.matrix.methods import columns, methods
from moesim.matrix.rule import DEPENDS, MINUS, PLUS

DOCS = Path(__file__).parents[2] / "docs"
CAUSES = {"counted elsewhere", "baseline differs", "model too coarse"}


@pytest.fixture(scope="module")
def judgements():
    with (DOCS / "matrix_judgements.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def second():
    with (DOCS / "matrix_second.csv").open(encoding="utf-8", newline="") as lines:
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
    assert equal >= 505
    listed = [line for line in page.splitlines() if any(f"| {cause} |" in line for cause in CAUSES)]
    assert len(listed) == cells - equal


def test_what_was_expected_of_the_second_set_names_its_columns(second):
    known = set(columns(second=True)) - set(columns())
    assert {name for row in second for name in row["methods"].split()} <= known
    assert {row["bottleneck"] for row in second} <= set(rows())
    assert {row["expected"] for row in second} <= {PLUS, MINUS, DEPENDS}


def test_the_page_judges_every_expectation_that_fails(second):
    page = (DOCS / "matrix.md").read_text()
    held, told = map(int, re.search(r"(\d+) of (\d+) expectations hold", page).groups())
    assert told == len(second)
    section = page.split("## The second set")[1].split("\n## ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| ") and "| method |" not in line]
    assert len(listed) == told - held
    assert all(len(line.rsplit("|", 2)[1]) > 30 for line in listed)


def test_the_page_says_what_became_of_every_reading_that_was_tried():
    page = (DOCS / "matrix.md").read_text()
    with (DOCS / "matrix_tried.csv").open(encoding="utf-8", newline="") as lines:
        tried = list(csv.DictReader(lines))
    assert {row["outcome"] for row in tried} == {"kept", "rejected"}
    assert all(f"| {row['outcome']} | {row['reading']} | {row['why']} |" in page for row in tried)


def test_the_page_names_every_method_and_bottleneck():
    page = (DOCS / "matrix.md").read_text()
    assert all(f"`{name}`" in page for name in (*columns(second=True), *rows()))
    assert all(methods.get(name).title in page for name in columns(second=True))
    assert all(bottlenecks.get(name).title in page for name in rows())
