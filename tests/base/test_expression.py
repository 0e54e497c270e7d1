from typing import Any

import numpy as np
import pytest

from moesim.base.expression import Expression


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("a % b == 0", {"a": 8, "b": 4}, True),
        ("a % b == 0 and not c", {"a": 8, "b": 4, "c": True}, False),
        ("a < b < 9", {"a": 3, "b": 4}, True),
        ("a < b < 4", {"a": 3, "b": 4}, False),
        ("max(a, b, 5) == 5", {"a": 3, "b": 4}, True),
        ("min(a, b) - 1 == -a + 5", {"a": 3, "b": 4}, True),
        ("s in ('x', 'y')", {"s": "y"}, True),
        ("s not in ['x', 'y']", {"s": "y"}, False),
        ("a // b * b + a % b == a", {"a": 9, "b": 4}, True),
        ("a / b > 2", {"a": 9, "b": 4}, True),
        ("true", {}, True),
        ("flag or false", {"flag": False}, False),
    ],
)
def test_on_numbers(text: str, values: dict[str, Any], result: bool) -> None:
    assert Expression(text).evaluate(values) is result


def test_arrays_equal_scalars() -> None:
    rule = Expression("(a % b == 0 or a in (3, 5)) and not flag")
    a, b, flag = (grid.ravel() for grid in np.meshgrid(np.arange(1, 9), np.arange(1, 5), [True, False]))
    batch = rule.evaluate({"a": a, "b": b, "flag": flag})
    assert isinstance(batch, np.ndarray)
    one_by_one = [rule.evaluate({"a": x, "b": y, "flag": z}) for x, y, z in zip(a, b, flag, strict=True)]
    assert batch.tolist() == one_by_one


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.b == 1",
        "a[0]",
        "lambda: 1",
        "[x for x in a]",
        "f(a)",
        "a in b",
        "a ** 9 > 1",
        "a is b",
        "a if b else c",
        "min()",
        "a ==",
    ],
)
def test_nothing_else_is_understood(text: str) -> None:
    with pytest.raises(ValueError, match=r"not allowed|cannot read|needs a list"):
        Expression(text)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ValueError, match="needs b"):
        Expression("a == b").evaluate({"a": 1})
