"""The table of docs/questions.yaml: its entries, what their commands answer, and the fields of an answer.

A path is ``top[0].strategy.ep``; ``[*]`` is every element of a list but those that are refused, ``[-1]`` the last one.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from typer.testing import CliRunner

FILE = Path(__file__).resolve().parent / "questions.yaml"
OWN_BASIS = ("low_s", "high_s", "evidence", "binding")
"""What an answer says of itself where it rests on no step: a collective has an interval and a bound of its own."""
BASIS = ("step_time_s", "low_s", "high_s", "evidence", "binding.resource")
NAMES = {
    "search": "moesim",
    "sweep": "moesim",
    "whatif": "moesim",
    "load": "moesim",
    "from_names": "moesim",
    "fit": "moesim.studies.fit",
    "scaled": "moesim.studies.scaling",
    "scaled_beside": "moesim.studies.scaling_beside",
    "fewest_of_each": "moesim.studies.fewest",
    "longest": "moesim.studies.longest",
    "diagnose": "moesim.studies.diagnose",
    "budget": "moesim.studies.budget",
    "comparison": "moesim.studies.compare",
    "checkpoint": "moesim.studies.checkpoint",
    "SavePlan": "moesim.studies.checkpoint:Plan",
    "exchanges": "moesim.studies.dispatching",
    "price": "moesim.studies.collectives",
    "setting": "moesim.studies.collectives",
    "railed": "moesim.studies.rails",
    "placements": "moesim.studies.placement",
    "schedules": "moesim.studies.schedules:compare",
    "wanted": "moesim.studies.schedules",
    "ranked": "moesim.studies.recomputing",
    "software_pinned": "moesim.spec.lookup",
    "offloading": "moesim.studies.offloading",
}
"""Where the names of the Python calls come from."""


@dataclass(frozen=True)
class Question:
    """One question, with its command, its Python call, and the paths of what answers it.

    ``exit_code`` that the command ends with; ``slow``: it takes more than a few seconds.
    """

    id: str
    question: str
    command: str
    python: str
    fields: dict[str, list[str]]
    says: str
    basis: str
    exit_code: int
    slow: bool

    @property
    def arguments(self) -> list[str]:
        """The command without its first word, with ``--json``."""
        words = shlex.split(self.command)[1:]
        return words if "--json" in words else [*words, "--json"]

    @property
    def basis_paths(self) -> list[str]:
        """Paths of interval, evidence and what binds."""
        if self.basis == "none":
            return []
        if self.basis == "own":
            return [f"cases[*].{name}" for name in OWN_BASIS]
        return [f"{self.basis}.{name}" for name in BASIS]

    def imports(self) -> list[str]:
        """Lines that make the names of the Python call known."""
        lines = []
        for name, home in NAMES.items():
            if re.search(rf"(?<![\w.\"-]){name}\(", self.python):
                module, _, attribute = home.partition(":")
                shown = f"{attribute} as {name}" if attribute else name
                lines.append(f"from {module} import {shown}")
        return lines


@dataclass(frozen=True)
class Answer:
    """What a command printed, as plain values, and how long it took. [s]"""

    plain: Any
    seconds: float


def questions() -> list[Question]:
    """Every question of the table."""
    found = []
    for told in YAML(typ="safe").load(FILE)["questions"]:
        fields = {name: path if isinstance(path, list) else [path] for name, path in told["fields"].items()}
        found.append(
            Question(
                told["id"],
                told["question"],
                told["command"],
                told["python"],
                fields,
                told["says"],
                told.get("basis", "basis"),
                told.get("exit", 0),
                told.get("slow", False),
            )
        )
    return found


def asked(question: Question) -> Answer:
    """Run the command of a question in this process; a ValueError with what it printed where it ends otherwise."""
    from moesim.cli.main import application

    start = time.perf_counter()
    done = CliRunner().invoke(application(question.arguments), question.arguments)
    seconds = time.perf_counter() - start
    if done.exit_code != question.exit_code or not done.stdout.startswith(("{", "[")):
        raise ValueError(f"{question.id}: exit code {done.exit_code}: {done.output or done.exception}")
    return Answer(json.loads(done.stdout), seconds)


def called(question: Question) -> Any:
    """What the Python call of a question returns."""
    known = {}
    for name, home in NAMES.items():
        module, _, attribute = home.partition(":")
        known[name] = getattr(importlib.import_module(module), attribute or name)
    return eval(question.python, known)


def values(plain: Any, path: str) -> Iterator[Any]:
    """Every value at a path.

    Examples
    --------
    >>> list(values({"rows": [{"a": 1}, {"refused": ["x"]}, {"a": 3}]}, "rows[*].a"))
    [1, 3]
    """
    steps = [(word, index) for word, index in re.findall(r"([^.\[\]]+)|\[(\*|-?\d+)\]", _joined(path))]
    yield from _walk(plain, steps)


def _joined(path: str) -> str:
    """The path with dots inside names as they are: ``faults.nic:node3.rail5.x`` has one name with a dot."""
    return re.sub(r"(nic:node\d+)\.", "\\1\0", path)


def _walk(plain: Any, steps: list[tuple[str, str]]) -> Iterator[Any]:
    if not steps:
        yield plain
        return
    (word, index), rest = steps[0], steps[1:]
    if word:
        yield from _walk(plain[word.replace("\0", ".")], rest)
    elif index == "*":
        for one in plain:
            if not (isinstance(one, dict) and refused(one)):
                yield from _walk(one, rest)
    else:
        yield from _walk(plain[int(index)], rest)


def refused(row: dict[str, Any]) -> bool:
    """Whether a row is one that has no answer."""
    return bool(row.get("refused")) or row.get("step_time_s", 0.0) is None or row.get("state") == "does not fit"


def missing(question: Question, plain: Any) -> list[str]:
    """Fields of a question that are absent, empty or not finite in an answer."""
    wanted = [(name, path) for name, paths in question.fields.items() for path in paths]
    wanted += [("basis", path) for path in question.basis_paths]
    found = []
    for name, path in wanted:
        try:
            told = list(values(plain, path))
        except (KeyError, IndexError, TypeError) as error:
            found.append(f"{name}: {path}: {error!r}")
            continue
        if not told or not all(_is_told(value) for value in told):
            found.append(f"{name}: {path}: {told}")
    return found


def _is_told(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return math.isfinite(value)
    return bool(value)


def said(question: Question, plain: Any) -> str:
    """The answer in words, its fields filled in.

    ``{path:form}`` is a field; ``<path| words {.field:form}>`` says words for every element at the path.
    """
    text = re.sub(r"<([^<>|]+)\|([^<>]*)>", lambda match: _each(plain, match[1], match[2]), question.says)
    return re.sub(r"\{([^{}]+)\}", lambda match: _field(plain, match[1]), text)


def _each(plain: Any, path: str, words: str) -> str:
    return "; ".join(
        re.sub(r"\{\.([^{}]+)\}", lambda match, one=one: _field(one, match[1]), words).strip()
        for one in values(plain, path)
    )


def _field(plain: Any, text: str) -> str:
    path, _, form = text.rpartition(":")
    return ", ".join(_shown(value, form) for value in values(plain, path))


def _duration(seconds: float, digits: int = 3) -> str:
    from moesim.base.units import format_quantity

    for size, word in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return format_quantity(seconds, "time", digits)


def _shown(value: Any, form: str) -> str:
    if value is None:
        return "none"
    if form == "n" and isinstance(value, str):
        value = float(value)
    match form:
        case "s":
            return _duration(value)
        case "s5":
            return _duration(value, 5)
        case "d":
            return f"{value / 86400:.1f}"
        case "gib":
            return f"{value / 2**30:.1f} GiB"
        case "mib":
            return f"{value / 2**20:,.0f} MiB"
        case "gb":
            return f"{value / 1e9:,.0f} GB"
        case "rate":
            return f"{value / 1e9:.1f} GB/s"
        case "pct":
            return f"{value:.1%}"
        case "x":
            return f"{value:.2f} x"
        case "x4":
            return f"{value:.4f} x"
        case "n":
            return f"{value:,.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, list) else str(value)
