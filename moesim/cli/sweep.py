"""``moesim sweep``: a grid of estimates, ranked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from moesim.base.errors import Collector, SpecError, did_you_mean
from moesim.base.words import changes_in_words
from moesim.cli import grammar
from moesim.cli.varied import varied_problem

HELP = """Estimate every combination of some values, rank them, and say what makes each one lose or refuses it.

--vary takes any path of --set with its values: fields of the strategy (auto for all that one can have), sequence_length,
routing=balanced,zipf:1.2, transports.deepep.num_sms=8,16,24, gpu.memory_bandwidth=x1,x1.2, fault=none,rail:5. For each axis the
optimum is told and the knee, beyond which it costs 5 % more. Layouts by the million are those of moesim search.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="PATH=A,B,C|auto", help="Values of one path; may be repeated."),
    ] = None,
    by: Annotated[str, typer.Option("--by", help="What ranks: throughput, step, memory or exposed.")] = "throughput",
    show: Annotated[
        list[str] | None, typer.Option("--show", help="Further columns: exposed, terms, memory, interval; repeatable.")
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Rows to print; all without.")] = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable((*grammar.ANSWERS, *grammar.TABLES), output=output)
    axes = grammar.axes(vary)
    wanted = [word for text in show or () for word in grammar.values(text)]
    problem = varied_problem(scenario, model, cluster, changes, vary, listed=True)

    from moesim.report.sweep import SHOWN, sweep_table, write_rows
    from moesim.studies.sweep import sweep

    problems = Collector()
    for word in wanted:
        if word not in SHOWN:
            problems.add("--show", "", f"'{word}' is no column", did_you_mean(word, SHOWN))
    problems.raise_if_any()
    if axes is None:
        raise SpecError.single("--vary", "", "nothing is varied", "write for example --vary ep=8,16,32")
    beside = grammar.measured_step(measured, problem)
    with _progress() as progress:
        found = sweep(problem, axes, by, progress=progress)
    output = grammar.written(output, lambda path: write_rows(path, found))
    plain = found.to_dict()
    plain["rows"] = plain["rows"][:top]
    shown: Any = sweep_table(found, top, wanted)
    if found.best is not None and found.best.answer is not None:
        name = changes_in_words(found.best.case)
        plain, shown = grammar.with_basis(plain, shown, found.best.answer, beside, name)
    grammar.deliver(plain, shown, as_json, output)
    if len(found.rows) < found.total:
        raise typer.Exit(grammar.INTERRUPTED)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Rows done on a terminal; nothing where there is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("sweeping", console=Console(stderr=True)) as status:
        yield lambda done, total: status.update(f"{done:,} of {total:,} combinations")
