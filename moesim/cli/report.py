"""``moesim report``: a scenario as one page of HTML."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Write a scenario as one HTML file that needs nothing else: answer, breakdown, timeline, memory, methods, evidence."""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", "--output", metavar="FILE", help="Write the page to an .html file.")
    ] = None,
) -> None:
    """Run the verb."""
    if output is None:
        fix = "write for example -o report.html; the numbers alone are those of moesim explain --json"
        raise SpecError.single("--out", "", "where to write the page is missing", fix)
    if output.suffix not in (".html", ".htm"):
        raise SpecError.single("--out", "", f"'{output}' is no page", "end it in .html")
    grammar.writable((), output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)
    measured_s = grammar.measured_step(measured, problem)

    from moesim.report.page import report, write_page

    told = [scenario] if scenario is not None else ["--model", str(model), "--cluster", str(cluster)]
    options = [part for change in changes or () for part in ("--set", change)]
    options += ["--measured", measured] if measured is not None else []
    found = report(problem, shlex.join(["moesim", "report", *told, *options, "-o", output.name]), measured_s)
    write_page(output, found)
    if as_json:
        grammar.deliver(found.to_dict(), None, True, None)
