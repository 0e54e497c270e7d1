"""``moesim validate``: a table of measured runs beside their estimates."""

from __future__ import annotations

import csv
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from moesim.base.errors import Collector, SpecError
from moesim.base.files import write_atomically
from moesim.cli import grammar

T = TypeVar("T")

HELP = """Set measured runs beside their estimates: errors by group, the worst rows, what could not be expressed.

Without --runs, the published runs that come with moesim. The columns are those of docs/run_table.md. With --pairs, what
single methods gained and lost: pairs of runs as in docs/ablation_table.md, published effect beside predicted effect.
"""


def command(
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="CSV", help="A table of your own, of runs or of pairs.")
    ] = None,
    models: grammar.ModelsOption = None,
    changes: grammar.SetOption = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Methods on and off instead of runs.")] = False,
    group_by: Annotated[
        str | None,
        typer.Option(
            "--group-by",
            metavar="A,B",
            help="family (default), stack, gpu, is_moe, model, memory_kind; pairs: group (default), metric, shared.",
        ),
    ] = None,
    plot: grammar.PlotOption = None,
    budget: Annotated[
        bool, typer.Option("--budget", help="Say where errors come from, by family; as slow again.")
    ] = False,
    table: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes.")] = os.cpu_count() or 1,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.drawable(plot)
    grammar.writable(plot=plot, csv=table, output=output)
    if runs is not None and not runs.is_file():
        raise SpecError.single(
            "--runs", "", f"there is no file '{runs}'", "name a CSV as in docs/run_table.md or docs/ablation_table.md"
        )
    grammar.folder(models)
    fixed = grammar.assignments(changes, "--set")

    by = None if group_by is None else [name.strip() for name in group_by.split(",") if name.strip()]
    asked = Asked(runs, by or (["group"] if pairs else ["family"]), table, jobs, as_json, output)
    if pairs:
        problems = Collector()
        for option, given in (("--plot", plot), ("--models", models), ("--set", changes), ("--budget", budget)):
            if given:
                problems.add(option, "", "is for runs, not for pairs", f"leave out {option} or --pairs")
        problems.raise_if_any()
        _pairs(asked)
    else:
        _runs(asked, plot, models, fixed, budget)


@dataclass(frozen=True)
class Asked:
    """A table, what to group its rows by, and where the answer goes."""

    path: Path | None
    by: list[str]
    csv: Path | None
    jobs: int
    as_json: bool
    output: Path | None


def _runs(asked: Asked, plot: Path | None, models: Path | None, fixed: Mapping[str, str], budget: bool) -> None:
    from rich.console import Group, RenderableType

    from moesim.report.error_budget import budget_tables
    from moesim.report.validate import scatter, validation_tables
    from moesim.studies import validate as study
    from moesim.studies.error_budget import budget_table
    from moesim.studies.targets import targets

    study.grouped([], asked.by)
    started = time.perf_counter()
    found = study.validated(asked.path or study.shipped_table(), asked.jobs, models, fixed, budget)
    rows = _with_progress(found, "runs")
    if not rows:
        raise SpecError.single(str(asked.path), "", "holds no row", "write one run a line")
    lines = targets(rows, time.perf_counter() - started)
    groups, refused = study.grouped(rows, asked.by), study.refusals(rows)
    if plot is not None:
        scatter(rows, plot)
    if asked.csv is not None:
        write_atomically(asked.csv, _csv([row.to_dict() | {"assumed": " ".join(row.assumed)} for row in rows]))
    plain: dict[str, Any] = {"rows": [row.to_dict() for row in rows], "summary": groups, "refused": refused}
    plain["targets"] = [line.to_dict() for line in lines]
    shown: list[RenderableType] = [validation_tables(rows, groups, refused, lines)]
    if budget:
        by_family = budget_table(rows)
        plain["budget"] = by_family
        shown += budget_tables(by_family)
    grammar.deliver(plain, Group(*shown), asked.as_json, asked.output)


def _pairs(asked: Asked) -> None:
    from moesim.report.ablations import ablation_tables
    from moesim.studies import ablations as study
    from moesim.studies.ablation_table import read_pairs, shipped_pairs

    study.grouped([], asked.by)
    printed = list(read_pairs(asked.path or shipped_pairs()))
    if not printed:
        raise SpecError.single(str(asked.path), "", "holds no row", "write one pair a line")
    rows = _with_progress(study.scored(printed, asked.jobs), "pairs")
    groups, omitted = study.grouped(rows, asked.by), study.omissions(rows)
    if asked.csv is not None:
        write_atomically(asked.csv, _csv([row.to_dict() for row in rows]))
    plain = {"rows": [row.to_dict() for row in rows], "summary": groups, "left_out": omitted}
    grammar.deliver(plain, ablation_tables(rows, groups, omitted), asked.as_json, asked.output)


def _with_progress(rows: Iterator[T], what: str) -> list[T]:
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    return list(track(rows, what, console=console, disable=not console.is_terminal, transient=True))


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    page = io.StringIO()
    writer = csv.DictWriter(page, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return page.getvalue()
