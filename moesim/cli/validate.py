"""``moesim validate``: a table of measured runs beside their estimates."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from moesim.base.errors import SpecError
from moesim.base.files import write_atomically
from moesim.cli import grammar

T = TypeVar("T")

HELP = """Set measured runs beside their estimates: errors by group, the worst rows, what could not be expressed.

Without --runs, the published runs that come with moesim. The columns are those of docs/run_table.md. With --pairs, what
single methods gained and lost: pairs of runs as in docs/ablation_table.md, published effect beside predicted effect.
"""
PLOTS = (".svg", ".png", ".pdf")


def command(
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="CSV", help="A table of your own, of runs or of pairs.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Methods on and off instead of runs.")] = False,
    group_by: Annotated[
        str | None,
        typer.Option(
            "--group-by",
            metavar="A,B",
            help="family (default), stack, gpu, is_moe, model, memory_kind; pairs: group (default), metric, shared.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw predicted over measured.")] = None,
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
        raise SpecError.single(
            "--runs", "", f"there is no file '{runs}'", "name a CSV as in docs/run_table.md or docs/ablation_table.md"
        )

    by = None if group_by is None else [name.strip() for name in group_by.split(",") if name.strip()]
    if pairs:
        if plot is not None:
            raise SpecError.single("--plot", "", "draws runs, not pairs", "leave out --plot or --pairs")
        _pairs(runs, by or ["group"], table, jobs, as_json, output)
    else:
        _runs(runs, by or ["family"], plot, table, jobs, as_json, output)


def _runs(
    runs: Path | None,
    by: list[str],
    plot: Path | None,
    table: Path | None,
    jobs: int,
    as_json: bool,
    output: Path | None,
) -> None:
    from moesim.report.validate import scatter, validation_tables
    from moesim.studies import validate as study

    study.grouped([], by)
    rows = _with_progress(study.validated(runs or study.shipped_table(), jobs), "runs")
    if not rows:
        raise SpecError.single(str(runs), "", "holds no row", "write one run a line")
    groups, refused = study.grouped(rows, by), study.refusals(rows)
    if plot is not None:
        scatter(rows, plot)
    if table is not None:
        write_atomically(table, _csv([row.to_dict() | {"assumed": " ".join(row.assumed)} for row in rows]))
    plain = {"rows": [row.to_dict() for row in rows], "summary": groups, "refused": refused}
    grammar.deliver(plain, validation_tables(rows, groups, refused), as_json, output)


def _pairs(path: Path | None, by: list[str], table: Path | None, jobs: int, as_json: bool, output: Path | None) -> None:
    from moesim.report.ablations import ablation_tables
    from moesim.studies import ablations as study
    from moesim.studies.ablation_table import read_pairs, shipped_pairs

    study.grouped([], by)
    printed = list(read_pairs(path or shipped_pairs()))
    if not printed:
        raise SpecError.single(str(path), "", "holds no row", "write one pair a line")
    rows = _with_progress(study.scored(printed, jobs), "pairs")
    groups, omitted = study.grouped(rows, by), study.omissions(rows)
    if table is not None:
        write_atomically(table, _csv([row.to_dict() for row in rows]))
    plain = {"rows": [row.to_dict() for row in rows], "summary": groups, "left_out": omitted}
    grammar.deliver(plain, ablation_tables(rows, groups, omitted), as_json, output)


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
