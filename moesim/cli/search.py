"""``moesim search``: the best of all layouts."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Find the best layouts of a job: every legal combination, exactly.

--vary takes fields of the strategy with their values, or auto for all that a field can have; what is left out stays as
the scenario says or follows the defaults of its software. Without --vary degrees, schedules, layouts, recomputation and
expert transports are varied. Ctrl-C prints what has been found.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.SearchOption = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="How many plans to print.")] = 20,
    objective: Annotated[str, typer.Option("--objective", help="step or memory.")] = "step",
    pareto: Annotated[
        str | None,
        typer.Option("--pareto", metavar="step,memory", help="Every plan than which none is better in both."),
    ] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    if pareto is not None and {part.strip() for part in pareto.split(",")} != {"step", "memory"}:
        raise SpecError.single("--pareto", "", f"'{pareto}' is no pair of objectives", "write --pareto step,memory")
    if pareto is not None and objective != "step":
        raise SpecError.single("--objective", "", "does not go with --pareto", "leave one out")
    grammar.suffixed(output, (".json", ".csv", ".parquet", ".txt"))
    grammar.writable(output=output)
    axes = grammar.axes(vary)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.search import search_table, shown_progress, write_rows
    from moesim.studies.search.search import search

    with shown_progress() as show:
        found = search(problem, axes, top, objective, pareto=pareto is not None, progress=show)
    if output is not None and output.suffix in (".csv", ".parquet"):
        write_rows(output, found)
        output = None
    grammar.deliver(found.to_dict(), search_table(found), as_json, output)
