"""``moesim estimate``: one training step, or several that differ by ``--vary``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from moesim.base.errors import SpecError
from moesim.base.units import parse_quantity
from moesim.cli import grammar

HELP = """Estimate one training step: time, where it goes, memory, what binds.

Paths of --set and --vary: strategy fields (ep or strategy.ep), scenario fields (global_batch, cluster.count), and
numbers of the hardware (gpu.memory_bandwidth="4 TB/s").
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.VaryOption = None,
    measured: Annotated[
        str | None, typer.Option("--measured", metavar="TIME", help="A measured step, such as 19.7s, to compare with.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Write the step as Chrome trace JSON (Perfetto).")
    ] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    measured_s = None if measured is None else measured_time(measured)
    fixed = grammar.assignments(changes, "--set")
    cases = grammar.variants(vary)
    if timeline is not None and len(cases) > 1:
        raise SpecError.single("--timeline", "", "draws one step", "leave out --vary")
    grammar.writable(timeline=timeline, output=output)
    problem = grammar.problem_of(scenario, model, cluster)
    if fixed:
        problem = problem.with_changes(fixed)

    from moesim.estimator import estimate
    from moesim.report import estimate as report

    if not vary:
        result = estimate(problem, measured_s=measured_s)
        if timeline is not None:
            from moesim.report.timeline import write_timeline

            write_timeline(timeline, result)
        grammar.deliver(result.to_dict(), report.summary(result), as_json, output)
        return
    rows: list[tuple[dict[str, str], Any]] = []
    plain: list[dict[str, Any]] = []
    problems: list[SpecError] = []
    for case in cases:
        try:
            result = estimate(problem.with_changes(case, "--vary"), measured_s=measured_s)
        except SpecError as error:
            problems.append(error)
            rows.append((case, "; ".join(issue.what for issue in error.issues)))
            plain.append({"set": case, "refused": [str(issue) for issue in error.issues]})
        else:
            rows.append((case, result))
            plain.append({"set": case} | result.to_dict())
    if len(problems) == len(cases):
        raise SpecError(issue for error in problems for issue in error.issues)
    grammar.deliver(plain, report.variants(rows), as_json, output)


def measured_time(text: str) -> float:
    """Return a measured time in s; a `SpecError` where it is none."""
    try:
        value = parse_quantity(text, "time")
    except ValueError as error:
        raise SpecError.single("--measured", "", str(error)) from None
    if value <= 0:
        raise SpecError.single("--measured", "", f"'{text}' is no duration", "write for example 19.7s")
    return value
