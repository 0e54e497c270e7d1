"""Arguments of calls."""

import math

import numpy as np
import pytest

from moesim.base.checked import axes, listed, number, optional, whole
from moesim.base.errors import SpecError


@pytest.mark.parametrize("value", [1, 0.5, np.float32(2), np.int64(3)])
def test_numbers_above_zero(value):
    assert number("call", "name", value) == value
    assert optional("call", "name", value) == value


def test_nothing_and_zero_where_they_are_allowed():
    assert optional("call", "name", None) is None
    assert number("call", "name", 0, zero=True) == 0


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "2TB", None, True, [1]])
def test_what_is_none_is_named(value):
    with pytest.raises(SpecError, match=r"^call: name: "):
        number("call", "name", value)


@pytest.mark.parametrize(
    ("check", "value"),
    [(whole, 1.5), (whole, True), (listed, "a,b"), (listed, 8), (listed, {"a": 1})],
)
def test_no_whole_number_and_no_list(check, value):
    with pytest.raises(SpecError, match=r"^call: name: "):
        check("call", "name", value)


@pytest.mark.parametrize(("value", "words"), [({"ep": 8}, r"vary\['ep'\]: 8 is no list"), (["ep"], "is no mapping")])
def test_axes_are_lists_by_name(value, words):
    with pytest.raises(SpecError, match=words):
        axes("sweep", value)
    axes("sweep", {"ep": [8], "tp": "auto", "pp": (1, 2)})
