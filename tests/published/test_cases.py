"""Questions and reports of practitioners, asked again; docs/cases.md shows the answers.

A case with a ``cause`` is missed and says why: it fails here as soon as it is met, any other as soon as it is missed.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECONDS = re.compile(r"\| [\d.]+ \|$|^\d+ s of one core", re.M)


@pytest.fixture(scope="module")
def script(names_of):
    """Names of the script that writes the page."""
    return names_of("make_cases")


@pytest.fixture(scope="module")
def known(script):
    return script["cases"]()


@pytest.fixture(scope="module")
def outcomes(script):
    """All of them are run once: 20 s of one core."""
    return [script["outcome"](check) for check in script["checks"]()]


def missed(outcomes):
    return {one.check.case for one in outcomes if not one.passed}


def test_what_is_missed_says_why(known, outcomes):
    assert missed(outcomes) == {case.case for case in known if case.cause}


def test_of_the_fully_specified_four_in_five_are_met(known, outcomes):
    full = {case.case for case in known if case.specified == "full"}
    assert len(full) == 35
    assert len(full - missed(outcomes)) >= 0.8 * len(full)


def test_every_case_is_asked_or_says_why_not(known, outcomes):
    asked = Counter(one.check.case for one in outcomes)
    assert len(known) == len({case.case for case in known}) == 74
    assert set(asked) <= {case.case for case in known}
    for case in known:
        assert case.link.startswith("https://")
        assert (case.case in asked) != case.assumed.startswith("Not asked: ")
        assert case.specified in ("full", "partial")
    assert all(case.case in asked for case in known if case.specified == "full")


def test_illegal_combinations_are_refused_before_anything_is_computed(outcomes):
    refused = [one for one in outcomes if one.check.case.startswith("ILL") and one.check.expected == "2"]
    assert len({one.check.case for one in refused}) == 10
    for one in refused:
        assert one.check.commands.startswith("moesim check ")
        assert one.answer == 2


def test_the_page_is_not_stale(script, known, outcomes):
    now, then = script["page"](outcomes, known), (DOCS / "cases.md").read_text(encoding="utf-8")
    assert SECONDS.sub("", then) == SECONDS.sub("", now), "run `python docs/make_cases.py`"


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "met"),
    [
        (1.09, "1", "10%", True),
        (1.11, "1", "10%", False),
        (0.05, "0", "0.08", True),
        (-0.09, "0", "0.08", False),
        (5, "1..4", "", False),
        (4.4, "1..4", "12%", True),
        ([1, 2, 3], "rises", "", True),
        ([1, 3, 2], "rises", "", False),
        ([3, 2], "falls", "", True),
        ([3], "falls", "", False),
        (False, "false", "", True),
        (0, "false", "", False),
        ("sick", "not healthy", "", True),
        ("healthy", "not healthy", "", False),
        ("tp 4 is wrong [rule]", "tp 4 | [rule]", "", True),
        ("tp 4 is wrong", "tp 4 | [rule]", "", False),
    ],
)
def test_comparisons(script, value, expected, tolerance, met):
    assert script["outcome"].__globals__["passed"](value, expected, tolerance) is met
