"""The rule: from quantities to a sign."""

import numpy as np
import pytest

from moesim.matrix.rule import BLANK, DEPENDS, MINUS, PLUS, PRICED_TOLERANCE, Vote, compare, of_pairs, of_ways, vote


@pytest.mark.parametrize(
    ("on", "off", "expected"),
    [
        (1.0, 2.0, -1),
        (2.0, 1.0, 1),
        (1.0, 0.0, 1),
        (0.0, 1.0, -1),
        (1.0005, 1.0, 0),  # below a thousandth
        (1.002, 1.0, 1),
        (0.0, 0.0, 2),
    ],
)
def test_a_quantity_is_less_more_the_same_or_absent(on, off, expected):
    assert compare(np.array([on]), np.array([off])).tolist() == [expected]


def test_a_change_may_be_set_against_something_else_than_both_sides():
    on, off, scale = np.array([2.0]), np.array([1.0]), np.array([1e6])
    assert compare(on, off, scale).tolist() == [0]


def test_changes_below_the_tolerance_are_none():
    on, off = np.array([1.01, 1.03]), np.array([1.0, 1.0])
    assert compare(on, off).tolist() == [1, 1]
    assert compare(on, off, tolerance=PRICED_TOLERANCE).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ([-1] * 9 + [0], PLUS),
        ([1] * 9 + [-1], MINUS),
        ([-1] * 8 + [1] * 2, DEPENDS),
        ([-1] * 5 + [1] * 5, DEPENDS),
        ([-1] * 5 + [0] * 5, PLUS),  # scenarios that it leaves alone say nothing about a direction
        ([0] * 8 + [1] * 2, MINUS),
        ([0] * 9 + [1], BLANK),
        ([-1, 2, 2, 2], PLUS),  # scenarios without any of it do not count
    ],
)
def test_nine_of_ten_scenarios_that_change_make_a_sign(signs, expected):
    assert vote([np.array(signs)], BLANK).sign == expected


@pytest.mark.parametrize(("absent", "expected"), [(BLANK, BLANK), (None, None)])
def test_where_no_scenario_has_any_of_it_the_bottleneck_says_what_that_means(absent, expected):
    assert vote([np.array([2, 2])], absent).sign == expected
    assert vote([], absent).sign is None


def ways(*signs):
    shares = {PLUS: (1.0, 0.0), MINUS: (0.0, 1.0), BLANK: (0.0, 0.0), DEPENDS: (0.5, 0.5)}
    return [Vote(*shares[sign], 1) for sign in signs]


@pytest.mark.parametrize(
    ("signs", "expected"),
    [((PLUS, PLUS), PLUS), ((PLUS, BLANK), DEPENDS), ((PLUS, MINUS), DEPENDS), ((BLANK,), BLANK), ((), BLANK)],
)
def test_ways_to_have_a_method_must_agree(signs, expected):
    assert of_ways(ways(*signs)) == expected


@pytest.mark.parametrize(
    ("signs", "expected"),
    [((PLUS, BLANK), PLUS), ((PLUS, MINUS), DEPENDS), ((BLANK, BLANK), BLANK), ((MINUS, DEPENDS), DEPENDS)],
)
def test_of_what_a_method_is_set_against_only_what_changes_something_speaks(signs, expected):
    assert of_pairs(signs) == expected
