"""``moesim search``: the best of all layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.cli.varied import varied_problem

if TYPE_CHECKING:
    from moesim.problem import Problem
    from moesim.studies.search.answer import Search

HELP = """Find the best layouts of a job: every legal combination, exactly.

--vary takes fields of the strategy with their values, or auto for all that a field can have; what is left out stays as
the scenario says or follows the defaults of its software. Without --vary degrees, schedules, layouts, recomputation and
expert transports are varied. --vary cluster=hgx-h100:32,hgx-h200:16 searches each machine and ranks them together. Ctrl-C
prints what has been found and exits with 130; with --checkpoint the same command goes on from there.
"""

WorkersOption = Annotated[int, typer.Option("--workers", metavar="N", help="Processes on this machine.")]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", metavar="tcp://HOST:PORT", help="Search on the workers of a Dask cluster.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE.jsonl", help="Note finished parts, and go on from those noted."),
]


TOP = 20
"""Plans that are printed where nobody says how many."""


@dataclass(frozen=True)
class Means:
    """Where a search runs, and what it keeps."""

    workers: int
    scheduler: str | None
    checkpoint: Path | None


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.SearchOption = None,
    top: Annotated[int | None, typer.Option("--top", metavar="N", help="How many plans to print, 20 without.")] = None,
    objective: Annotated[str, typer.Option("--objective", help="step, memory or tokens-per-dollar.")] = "step",
    pareto: Annotated[
        str | None,
        typer.Option("--pareto", metavar="step,memory", help="Every plan than which none is better in all."),
    ] = None,
    price: grammar.PriceOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    checkpoint: CheckpointOption = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    several = () if pareto is None else objectives("--pareto", pareto)
    for option, idle in (("--objective", objective != "step"), ("--top", top is not None)):
        if several and idle:
            raise SpecError.single(option, "", "does not go with --pareto", "leave one out")
    grammar.writable((*grammar.ANSWERS, *grammar.TABLES), output=output, checkpoint=checkpoint)
    problem = varied_problem(scenario, model, cluster, changes, vary)
    beside = grammar.measured_step(measured, problem)
    found = searched(
        problem, vary, TOP if top is None else top, objective, several, price, Means(workers, scheduler, checkpoint)
    )
    deliver(found, as_json, output, beside)


def objectives(option: str, text: str) -> tuple[str, ...]:
    """Return the objectives of a front."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(found) < 2:
        raise SpecError.single(option, "", f"'{text}' is not several objectives", f"write {option} step,memory")
    return found


def searched(
    problem: Problem,
    vary: Sequence[str] | None,
    top: int,
    objective: str,
    several: Sequence[str],
    price: str | None,
    means: Means,
) -> Search:
    """Search, with its progress on the terminal."""
    axes, costs = grammar.axes(vary), grammar.price(price)

    from moesim.report.search import shown_progress
    from moesim.studies.search.refusals import refusals
    from moesim.studies.search.search import search

    with shown_progress() as show:
        found = search(
            problem,
            axes,
            top,
            objective,
            pareto=several,
            price=costs,
            workers=means.workers,
            scheduler=means.scheduler,
            checkpoint=means.checkpoint,
            progress=show,
        )
    if found.complete and not found.plans_legal:
        raise SpecError(refusals(found))
    return found


def deliver(found: Search, as_json: bool, output: Path | None, measured_s: float | None = None) -> None:
    """Print the best plans, or write them to a file; ``measured_s``: a step to set beside the best. [s]"""
    from moesim.report.search import search_table, write_rows

    output = grammar.written(output, lambda path: write_rows(path, found))
    plain, shown = found.to_dict(), search_table(found)
    if found.top:
        plain, shown = grammar.with_basis(plain, shown, found.top[0].answer, measured_s, found.top[0].variant)
    grammar.deliver(plain, shown, as_json, output)
    if not found.complete:
        raise typer.Exit(grammar.INTERRUPTED)
