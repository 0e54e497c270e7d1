"""``moesim validate``: a table of measured runs beside their estimates."""

from __future__ import annotations

import csv
import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moesim.base.errors import SpecError
from moesim.base.files import write_atomically
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.studies.validate import Row

HELP = """Set measured runs beside their estimates: errors by group, the worst rows, what could not be expressed.

Without --runs, the published runs that come with moesim. The columns are those of docs/run_table.md.
"""
PLOTS = (".svg", ".png", ".pdf")


def command(
    runs: Annotated[Path | None, typer.Option("--runs", metavar="CSV", help="A table of runs of your own.")] = None,
    models: grammar.ModelsOption = None,
    changes: grammar.SetOption = None,
    group_by: Annotated[
        str, typer.Option("--group-by", metavar="A,B", help="family, stack, gpu, is_moe, model, memory_kind.")
    ] = "family",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw predicted over measured.")] = None,
    budget: Annotated[
        bool, typer.Option("--budget", help="Say where errors come from, by family; as slow again.")
    ] = False,
    table: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes.")] = os.cpu_count() or 1,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    if plot is not None and plot.suffix not in PLOTS:
        raise SpecError.single("--plot", "", f"'{plot}' is no picture", f"end it in {', '.join(PLOTS)}")
    grammar.writable(plot=plot, csv=table, output=output)
    if runs is not None and not runs.is_file():
        raise SpecError.single("--runs", "", f"there is no file '{runs}'", "name a CSV as in docs/run_table.md")
    grammar.folder(models)
    fixed = grammar.assignments(changes, "--set")

    from rich.console import Group, RenderableType

    from moesim.report.error_budget import budget_tables
    from moesim.report.validate import scatter, validation_tables
    from moesim.studies import validate as study
    from moesim.studies.error_budget import budget_table
    from moesim.studies.targets import targets

    by = [name.strip() for name in group_by.split(",") if name.strip()]
    study.grouped([], by)
    started = time.perf_counter()
    rows = _with_progress(study.validated(runs or study.shipped_table(), jobs, models, fixed, budget))
    if not rows:
        raise SpecError.single(str(runs), "", "holds no row", "write one run a line")
    lines = targets(rows, time.perf_counter() - started)
    groups, refused = study.grouped(rows, by), study.refusals(rows)
    if plot is not None:
        scatter(rows, plot)
    if table is not None:
        write_atomically(table, _csv(rows))
    plain: dict[str, Any] = {"rows": [row.to_dict() for row in rows], "summary": groups, "refused": refused}
    plain["targets"] = [line.to_dict() for line in lines]
    shown: list[RenderableType] = [validation_tables(rows, groups, refused, lines)]
    if budget:
        by_family = budget_table(rows)
        plain["budget"] = by_family
        shown += budget_tables(by_family)
    grammar.deliver(plain, Group(*shown), as_json, output)


def _with_progress(rows: Iterator[Row]) -> list[Row]:
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    return list(track(rows, "runs", console=console, disable=not console.is_terminal, transient=True))


def _csv(rows: Sequence[Row]) -> str:
    page = io.StringIO()
    writer = csv.DictWriter(page, list(rows[0].to_dict()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.to_dict() | {"assumed": " ".join(row.assumed)} for row in rows)
    return page.getvalue()
