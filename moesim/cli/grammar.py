"""The grammar that every verb keeps: what a question is about, what to change, what to vary, where the answer goes."""

from __future__ import annotations

import io
import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moesim.base.errors import Collector, SpecError
from moesim.base.files import write_atomically
from moesim.base.units import parse_quantity

if TYPE_CHECKING:
    from moesim.problem import Problem
    from moesim.result import Estimate

INTERRUPTED = 130
"""Exit code after Ctrl-C, whether or not something was found before it."""
PICTURES = (".svg", ".png", ".pdf")
"""Endings of files that can be drawn."""
TABLES = (".csv", ".parquet")
"""Endings of files of rows."""

Scenario = Annotated[
    str | None, typer.Argument(metavar="[SCENARIO]", help="A scenario file, or the name of a shipped one.")
]
ModelOption = Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Without a file: the model.")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="NODE:COUNT", help="Without a file: the nodes, such as hgx-h100:32.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change one value, or x1.2 of it; repeatable.")
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option("--vary", metavar="PATH=A,B,C", help="Try several values of one path; may be repeated."),
]
SearchOption = Annotated[
    list[str] | None, typer.Option("--vary", metavar="FIELD=A,B,C|auto", help="Values of a field; may be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: SI numbers, the unit in the key.")]
OutputOption = Annotated[
    Path | None, typer.Option("--out", "-o", "--output", metavar="FILE", help="Write the answer to a file.")
]
CalibrationsOption = Annotated[
    str | None,
    typer.Option("--calibrations", metavar="FILE[,FILE]", help="Your own, in place of the shipped ones."),
]
ModelsOption = Annotated[
    Path | None, typer.Option("--models", metavar="DIR", help="A folder with models of your own, MODEL.yaml each.")
]
ReoptimiseOption = Annotated[
    str | None,
    typer.Option("--reoptimise", metavar="FIELD,...", help="Fields to search for each column, such as tp,pp,ep."),
]
MeasuredOption = Annotated[
    str | None,
    typer.Option("--measured", metavar="STEP", help="A measured step: 19.7s, 1234tok/s, 245TFLOP/s of a GPU, or 25%."),
]
PriceOption = Annotated[
    str | None, typer.Option("--price", metavar="2.5/h", help="Of a GPU, or NODE=2.5/h,NODE=3.5/h.")
]
FAULTS = "nic:node3.rail5, rail:5, switch:spine0, link:A-B, node:3, degrade:spine=0.5 or slow:node3=0.8."
"""Kinds of fault, as --help tells them."""
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: .svg, .png or .pdf.")]
OverlayOption = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the overlay here.")]


def folder(models: Path | None) -> None:
    """Raise a `SpecError` where ``--models`` names no folder."""
    if models is not None and not models.is_dir():
        raise SpecError.single("--models", "", f"there is no folder '{models}'", "name one with MODEL.yaml files")


def problem_of(scenario: str | None, model: str | None, cluster: str | None) -> Problem:
    """Return the problem that SCENARIO, or ``--model`` with ``--cluster``, names."""
    from moesim.problem import from_names, load

    if scenario is not None:
        problems = Collector()
        for option, value in (("--model", model), ("--cluster", cluster)):
            if value is not None:
                path = option.removeprefix("--")
                problems.add(option, "", "does not go with a scenario", f"write --set {path}={value}")
        problems.raise_if_any()
        return load(scenario)
    if model is None or cluster is None:
        raise SpecError.single(
            "", "", "what to estimate is missing", "give SCENARIO, or --model M --cluster NODE:COUNT"
        )
    return from_names(model, cluster)


def changed_problem(scenario: str | None, model: str | None, cluster: str | None, changes: list[str] | None) -> Problem:
    """Return the problem that is named, with what ``--set`` changes."""
    fixed = assignments(changes, "--set")
    problem = problem_of(scenario, model, cluster)
    return problem.with_changes(fixed) if fixed else problem


def assignments(options: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return ``PATH=VALUE`` options as a mapping; each takes one path."""
    found: dict[str, str] = {}
    problems = Collector()
    for text in options or ():
        path, equals, value = text.partition("=")
        if not equals or not path or not value:
            problems.add(f"{option} {text}", "", "is not PATH=VALUE", f"write for example {option} ep=16")
        elif path.strip() in found:
            problems.add(f"{option} {path.strip()}", "", "is given twice", "give each path once")
        else:
            found[path.strip()] = value.strip()
    problems.raise_if_any()
    return found


def changes_of(options: Sequence[str] | None, option: str) -> list[dict[str, str]]:
    """Return options of several changes each, ``PATH=VALUE; PATH=VALUE``, as mappings; one issue for each that is none."""
    found, problems = [], Collector()
    for text in options or ():
        try:
            found.append(assignments([part for part in text.split(";") if part.strip()], option))
        except SpecError as error:
            problems.extend(error.issues)
    problems.raise_if_any()
    return found


def field_names(text: str | None) -> list[str]:
    """Return the strategy fields of a list with commas."""
    return [name.removeprefix("strategy.") for name in values(text or "")]


def variants(options: Sequence[str] | None) -> list[dict[str, str]]:
    """Return every combination of the values in ``--vary``; one empty combination without it."""
    varied = {path: values(text) for path, text in assignments(options, "--vary").items()}
    problems = Collector()
    for path, found in varied.items():
        if not found:
            problems.add(f"--vary {path}", "", "has no values", f"write for example --vary {path}=1,2,4")
    problems.raise_if_any()
    return [dict(zip(varied, case, strict=True)) for case in itertools.product(*varied.values())]


def axes(options: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the values of a search by field, ``auto`` kept as a word; None where nothing is varied by name."""
    if not options:
        return None
    told = assignments(options, "--vary")
    return {path: "auto" if text == "auto" else values(text) for path, text in told.items()}


def values(text: str) -> list[str]:
    """Return the values of a list, split at commas outside brackets: ``[a, b],none`` are two values."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def positive(option: str, text: str | None, dimension: str, example: str = "") -> float | None:
    """Return a quantity above zero that an option takes, None where it is not given; a `SpecError` where it is none."""
    if text is None:
        return None
    try:
        value = parse_quantity(text, dimension, example)
    except ValueError as error:
        raise SpecError.single(option, "", str(error)) from None
    if value <= 0:
        raise SpecError.single(option, "", f"'{text}' is not more than zero")
    return value


def price(text: str | None) -> float | dict[str, float] | None:
    """Return the price of a GPU, ``2.5/h``, or that of each kind of node, ``hgx-h100=2/h,hgx-h200=3/h``. [currency/h]"""
    if text is None:
        return None
    found: dict[str, float] = {}
    for part in text.split(","):
        node, _, number = part.rpartition("=")
        try:
            value = float(number.strip().removesuffix("/h"))
        except ValueError:
            value = 0.0
        if not 0 < value < math.inf or node.strip() in found or (not node and "," in text):
            fix = "write 2.5/h, or hgx-h100=2.5/h,hgx-h200=3.5/h"
            raise SpecError.single("--price", "", f"'{text}' is no price of a GPU for an hour", fix)
        found[node.strip()] = value
    return found.get("", found)


def measured_step(text: str | None, problem: Problem) -> float | None:
    """Return the step that ``--measured`` tells, as a time, a rate or a utilisation; None without it. [s]"""
    if text is None:
        return None
    from moesim.studies import measures

    return measures.measured_step(text, problem)


def with_basis(
    plain: dict[str, Any], shown: Any, answer: Estimate, measured_s: float | None, variant: str = ""
) -> tuple[Any, Any]:
    """Return an answer with the step that it rests on, and how that differs from the scenario's, plain and as people read it."""
    from rich.console import Group

    from moesim.report.basis import basis_line
    from moesim.studies.basis import basis

    told = basis(answer, measured_s, variant)
    return plain | {"basis": told}, Group(shown, basis_line(told))


def drawable(plot: Path | None) -> None:
    """Refuse a plot whose ending is no kind of picture."""
    if plot is not None and plot.suffix not in PICTURES:
        raise SpecError.single("--plot", "", f"'{plot}' is no picture", f"end it in {', '.join(PICTURES)}")


def files(text: str | None) -> tuple[Path, ...]:
    """Return the files of a list with commas."""
    return tuple(Path(part.strip()) for part in (text or "").split(",") if part.strip())


def written(output: Path | None, write: Callable[[Path], None]) -> Path | None:
    """Write rows where the file is to have them; return the file where it is to have the answer instead."""
    if output is None or output.suffix not in TABLES:
        return output
    write(output)
    return None


def suffixed(output: Path | None, endings: Sequence[str]) -> None:
    """Refuse a file whose ending says another kind of answer than there is; none at all is text."""
    if output is not None and output.suffix and output.suffix not in endings:
        raise SpecError.single(
            "--out", "", f"no answer of the kind '{output.suffix}'", f"end it in {', '.join(endings)}"
        )


ANSWERS = (".json", ".txt")
"""Endings of files with an answer that is no list of rows."""


def writable(endings: Sequence[str] = ANSWERS, **files: Path | None) -> None:
    """Refuse files that cannot be written, by option, before anything is computed or written.

    ``output`` is that of ``--out``, and has one of ``endings``, where there are any, or none.
    """
    problems = Collector()
    seen: dict[Path, str] = {}
    if endings:
        suffixed(files.get("output"), endings)
    for given, path in files.items():
        name = "out" if given == "output" else given
        if path is None:
            continue
        if path.is_dir():
            problems.add(f"--{name}", "", f"'{path}' is a folder", "name a file")
        elif not path.parent.is_dir():
            problems.add(f"--{name}", "", f"there is no folder '{path.parent}'", "make it, or name another")
        elif path.resolve() in seen:
            problems.add(f"--{name}", "", f"'{path}' is also the file of --{seen[path.resolve()]}", "name another")
        seen[path.resolve()] = name
    problems.raise_if_any()


def wants_json(as_json: bool, output: Path | None) -> bool:
    """Whether an answer is asked for as plain values, by an option or by the name of the file."""
    return as_json or (output is not None and output.suffix == ".json")


def deliver(plain: Any, shown: Any, as_json: bool, output: Path | None) -> None:
    """Print or write an answer: JSON where asked for (or where the file is called .json), otherwise as people read it.

    Parameters
    ----------
    plain
        The answer as plain values.
    shown
        The same as a rich renderable.
    """
    if wants_json(as_json, output):
        text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
        if output is None:
            typer.echo(text, nl=False)
        else:
            write_atomically(output, text)
        return
    from rich.console import Console

    if output is None:
        Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 140).print(shown)
        return
    page = io.StringIO()
    Console(file=page, width=140, highlight=False).print(shown)
    write_atomically(output, page.getvalue())
