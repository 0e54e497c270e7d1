"""Small boolean expressions, used for the rules of a framework in its software spec.

An expression is parsed once and evaluated on numbers or on arrays, so a rule serves as the mask of a batch and as
the message of one strategy. Only arithmetic, comparisons, ``and or not in``, ``min`` and ``max`` exist; nothing else
can be called and no attribute can be read.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: np.logical_not,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": np.minimum, "max": np.maximum}
_CONSTANTS = {"true": True, "false": False}


class Expression:
    """A parsed expression.

    Examples
    --------
    >>> rule = Expression("num_kv_heads % tp == 0 or tp % num_kv_heads == 0")
    >>> sorted(rule.names)
    ['num_kv_heads', 'tp']
    >>> rule.evaluate({"num_kv_heads": 4, "tp": 2})
    True
    >>> rule.evaluate({"num_kv_heads": 4, "tp": np.array([2, 3, 8])})
    array([ True, False,  True])
    >>> Expression("schedule in ('1f1b', 'gpipe')").evaluate({"schedule": "gpipe"})
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._body = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"cannot read the expression '{text}': {error.msg}") from None
        self.names: frozenset[str] = frozenset(_check(self._body, text))

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def evaluate(self, values: Mapping[str, Any]) -> bool | NDArray[np.bool_]:
        """Return the truth of the expression for `values`: a bool, or an array where a value is one."""
        result = np.asarray(self.value(values), dtype=np.bool_)
        return result if result.ndim else bool(result)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return what the expression is for `values`.

        Examples
        --------
        >>> float(Expression("min(ep, 8) / 2").value({"ep": 32}))
        4.0
        """
        missing = sorted(self.names - set(values))
        if missing:
            raise ValueError(f"the expression '{self.text}' needs {', '.join(missing)}")
        return _value(self._body, values)


def _check(node: ast.AST, text: str) -> set[str]:
    """Return the names an expression uses; refuse everything outside the small language."""
    match node:
        case ast.Name(id=name):
            return set() if name in _CONSTANTS else {name}
        case ast.Constant(value=bool() | int() | float() | str()):
            return set()
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            parts: list[ast.expr] = [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            parts = [operand]
        case ast.BoolOp(values=operands):
            parts = operands
        case ast.Compare(left=left, ops=ops, comparators=right_sides):
            for comparison, right in zip(ops, right_sides, strict=True):
                if isinstance(comparison, ast.In | ast.NotIn):
                    if not isinstance(right, ast.Tuple | ast.List):
                        raise ValueError(f"'in' needs a list of values on its right, in '{text}'")
                elif type(comparison) not in _OPERATORS:
                    raise ValueError(f"'{type(comparison).__name__}' is not allowed in '{text}'")
            parts = [left, *right_sides]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            parts = items
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS and arguments:
            parts = arguments
        case _:
            raise ValueError(f"'{ast.unparse(node)}' is not allowed in '{text}'")
    return {name for part in parts for name in _check(part, text)}


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return _CONSTANTS[name] if name in _CONSTANTS else values[name]
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_value(operand, values))
        case ast.BoolOp(op=op, values=operands):
            return reduce(_OPERATORS[type(op)], (_value(operand, values) for operand in operands))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_value(item, values) for item in items]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return reduce(_FUNCTIONS[name], (_value(argument, values) for argument in arguments))
        case ast.Compare(left=left, ops=ops, comparators=right_sides):
            sides = [_value(side, values) for side in (left, *right_sides)]
            return reduce(
                np.logical_and,
                (_compare(op, *pair) for op, pair in zip(ops, pairwise(sides), strict=True)),
            )
    raise AssertionError(f"unchecked node {node!r}")  # pragma: no cover


def _compare(op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, ast.In | ast.NotIn):
        found = reduce(np.logical_or, (np.asarray(left) == item for item in right), np.False_)
        return np.logical_not(found) if isinstance(op, ast.NotIn) else found
    return _OPERATORS[type(op)](left, right)
