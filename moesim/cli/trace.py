"""``moesim trace``: what measured traces say, and what the model says about them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.traces.kernel_rule import Classes

HELP = """Read traces of the PyTorch profiler and of Nsight Systems: sum up, match, replay, compare, convert.

A trace is told by what it holds, with or without gzip. Defects of a file are repaired and counted, or refused with their place.
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
