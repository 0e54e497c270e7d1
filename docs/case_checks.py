"""Questions and reports of practitioners, asked again as ``tests/published/cases.csv`` and ``case_checks.csv`` have them.

Every command is run in this process through the application of the command line, as it stands, from the folder of the
project.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import operator
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.cli.main import application

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "tests" / "published"
SPLIT = " ; "
"""Between the commands of a check; its field calls their answers a, b, c ..."""
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Case:
    """A question: ``specified`` full or partial; ``seen`` while moesim was built.

    ``fitted``: runs of it that served a fit; ``assumed``: what the report leaves open, and what is asked instead; ``cause``: of a miss.
    """

    case: str
    specified: str
    question: str
    seen: str
    fitted: str
    link: str
    assumed: str
    cause: str


@dataclass(frozen=True)
class Check:
    """One quantity of a case: commands, the field of their answers, what it should be, and how far off it may be.

    ``expected``: a number, ``low..high``, ``rises`` or ``falls`` (one by one), a word, true or false, ``not WORD``, or the
    parts of a message with | between them. ``tolerance``: of a number, in per cent of it or as a number.
    """

    case: str
    what: str
    commands: str
    field: str
    expected: str
    tolerance: str


@dataclass(frozen=True)
class Outcome:
    """A check with its answer."""

    check: Check
    answer: Any
    passed: bool
    seconds: float


def cases() -> list[Case]:
    """Return the questions."""
    with (PUBLISHED / "cases.csv").open(encoding="utf-8", newline="") as file:
        return [Case(**row) for row in csv.DictReader(file)]


def checks() -> list[Check]:
    """Return what is asked of each."""
    with (PUBLISHED / "case_checks.csv").open(encoding="utf-8", newline="") as file:
        return [Check(**row) for row in csv.DictReader(file)]


def outcome(check: Check) -> Outcome:
    """Run the commands of a check and compare."""
    start = time.process_time()
    answers = [answer(command) for command in check.commands.split(SPLIT)]
    names = dict(zip("abcdefgh", answers, strict=False))
    try:
        value = evaluated(ast.parse(check.field, mode="eval").body, names)
    except (KeyError, TypeError, IndexError) as error:
        told = "; ".join(str(one["error"]) for one in answers if isinstance(one, dict) and "error" in one)
        raise ValueError(f"{check.case}, {check.what}: no {check.field}: {error!r} {told}") from None
    return Outcome(check, value, passed(value, check.expected, check.tolerance), time.process_time() - start)


@lru_cache(maxsize=512)
def answer(command: str) -> Any:
    """Return the JSON of a command; the message and the exit code where it is refused."""
    name, *words = shlex.split(command)
    if name != "moesim":
        raise ValueError(f"'{command}' is no command of moesim")
    printed = io.StringIO()
    plain = words[0] == "check"
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(printed):
        try:
            code = application(words)(words if plain else [*words, "--json"], standalone_mode=False)
        except SpecError as error:
            return {"error": str(error), "exit_code": 2}
    if plain:
        return {"error": "", "said": printed.getvalue().strip(), "exit_code": code or 0}
    return json.loads(printed.getvalue())


def evaluated(node: ast.AST, names: dict[str, Any]) -> Any:
    """Value of a field: ``a.memory.peak_bytes``, ``a.step_time_s / b.step_time_s``; lists go item by item."""
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=value):
            return value
        case ast.Attribute(value=inner, attr=key):
            found = evaluated(inner, names)
            return [one[key] for one in found] if isinstance(found, list) else found[key]
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return evaluated(inner, names)[key]
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](evaluated(left, names), evaluated(right, names))
        case ast.Call(func=ast.Name(id="max"), args=[inner]):
            return max(evaluated(inner, names))
        case ast.List(elts=items):
            return [evaluated(item, names) for item in items]
    raise ValueError(f"a field cannot hold {ast.dump(node)}")


def passed(value: Any, expected: str, tolerance: str) -> bool:
    """Whether an answer is what was expected."""
    if expected in ("rises", "falls"):
        sign = 1 if expected == "rises" else -1
        return len(value) > 1 and all(sign * (after - before) > 0 for before, after in pairwise(value))
    if expected in ("true", "false"):
        return value is (expected == "true")
    if expected.startswith("not "):
        return bool(value != expected.removeprefix("not "))
    low, dots, high = expected.partition("..")
    if dots:
        slack = float(tolerance.removesuffix("%")) / 100 if tolerance else 0.0
        return float(low) * (1 - slack) <= value <= float(high) * (1 + slack)
    try:
        number = float(expected)
    except ValueError:
        return all(part.strip() in str(value) for part in expected.split("|"))
    off = abs(value - number)
    if tolerance.endswith("%"):
        return bool(off <= abs(number) * float(tolerance.removesuffix("%")) / 100)
    return bool(off <= float(tolerance or 1e-9 * abs(number)))
