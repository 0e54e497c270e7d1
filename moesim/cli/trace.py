"""``moesim trace``: what measured traces say, and what the model says about them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.traces.kernel_rule import Classes
    from moesim.traces.summary import Work

HELP = """Read traces of the PyTorch profiler and of Nsight Systems: sum up, match, replay, compare, convert.

A trace is told by what it holds, with or without gzip. Defects of a file are repaired and counted, or refused with
their place.
"""
PROGRESS_BYTES = 50_000_000
"""Size of a file from which a bar is shown. [B]"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
Traces = Annotated[
    list[Path], typer.Argument(metavar="TRACE...", help="Traces of one run: files, folders or tar archives.")
]
Trace = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace.")]
RulesOption = Annotated[
    Path | None,
    typer.Option("--rules", metavar="FILE", help="Your own classes: kernels: [{class: gemm, pattern: my_gemm}]."),
]


def rules_of(path: Path | None) -> Classes:
    """Rules of a user's file before the shipped ones."""
    from moesim.traces.kernel_rule import classes

    return classes(path)


@contextmanager
def progress() -> Iterator[Callable[[Path], Callable[[int], None]]]:
    """A bar on stderr for large files, where it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:

        def opened(path: Path) -> Callable[[int], None]:
            size = path.stat().st_size
            if size < PROGRESS_BYTES:
                return lambda _taken: None
            task = bar.add_task(path.name, total=size)
            return lambda taken: bar.update(task, completed=taken)

        yield opened


@app.command("summary")
def summary(
    traces: Traces,
    linked_only: Annotated[
        bool, typer.Option("--linked-only", help="Leave out work that was launched before the file begins.")
    ] = False,
    rules: RulesOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Show what each GPU did: classes, busy, idle, exposed communication, waiting for the host, steps, ranks."""
    grammar.writable(output=output)

    from moesim.report.trace import report_tables
    from moesim.studies.trace_summary import trace_report

    with progress() as opened:
        found = trace_report(traces, rules_of(rules), linked_only=linked_only, opened=opened)
    grammar.deliver(found.to_dict(), report_tables(found), as_json, output)


@app.command("diff")
def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="The trace to compare with.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The other trace.")],
    rules: RulesOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Compare two traces: GPUs, classes and operators by how much they differ, what is new and what is gone."""
    grammar.writable(output=output)

    from moesim.report.trace_diff import diff_tables
    from moesim.studies.trace_diff import trace_diff

    found = trace_diff(_one(first, rules), _one(second, rules))
    grammar.deliver(found.to_dict(), diff_tables(found), as_json, output)


@app.command("convert")
def convert(
    trace: Trace,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="FILE.parquet, or FILE.json for Perfetto and chrome://tracing."
        ),
    ],
    rules: RulesOption = None,
) -> None:
    """Write a trace as a Parquet table or as a repaired Chrome trace."""
    grammar.suffixed(out, (".parquet", ".json"))
    if not out.suffix:
        raise SpecError.single("--out", "", f"'{out}' does not say which form", "end it in .parquet or .json")
    grammar.writable(out=out)

    from moesim.report.trace import repairs
    from moesim.studies.trace_convert import to_parquet, to_perfetto

    work = _one(trace, rules)
    (to_parquet if out.suffix == ".parquet" else to_perfetto)(work, out)
    typer.echo(f"{out}: {len(work.table):,} events", err=True)
    for line in repairs(trace.name, work.table.repaired, work.table.first):
        typer.echo(line, err=True)


def _one(path: Path, rules: Path | None) -> Work:
    """GPU work of a single trace."""
    from moesim.studies.trace_summary import works

    with progress() as opened, works([path], rules_of(rules), opened) as read:
        if len(read) > 1:
            raise SpecError.single(str(path), "", f"holds {len(read)} traces", "name one rank")
        return read[0]
