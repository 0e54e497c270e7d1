"""``moesim estimate``: one training step, or several that differ by ``--vary``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.cli.varied import varied_problem

if TYPE_CHECKING:
    from moesim.result import Estimate
    from moesim.studies.faults import Faulted

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
    measured: grammar.MeasuredOption = None,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="KIND:TARGET", help=grammar.FAULTS),
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Write the step as Chrome trace JSON (Perfetto).")
    ] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    cases = grammar.variants(vary)
    if timeline is not None and len(cases) > 1:
        raise SpecError.single("--timeline", "", "draws one step", "leave out --vary")
    fault = _one_fault(faults)
    if fault is not None and (timeline is not None or measured is not None):
        raise SpecError.single(
            "--fault", "", "sets the step beside the one without", "leave out --timeline, --measured"
        )
    if fault is not None and any("fault" in case for case in cases):
        raise SpecError.single("--fault", "", "--vary fault replaces it", "leave one of the two out")
    grammar.writable(timeline=timeline, output=output)
    problem = varied_problem(scenario, model, cluster, changes, vary, listed=True)
    measured_s = grammar.measured_step(measured, problem)

    from moesim.estimator import estimate
    from moesim.report import estimate as report
    from moesim.studies.faults import PATH, faulted, with_changes

    if not vary:
        result = estimate(problem, measured_s=measured_s)
        if fault is not None:
            _with_fault(faulted(problem, fault), result, as_json, output)
            return
        if timeline is not None:
            from moesim.report.timeline import write_timeline

            write_timeline(timeline, result)
        grammar.deliver(result.to_dict(), report.summary(result), as_json, output)
        return
    rows: list[tuple[dict[str, str], Any]] = []
    plain: list[dict[str, Any]] = []
    problems: list[SpecError] = []
    for case in cases if fault is None else [case | {PATH: fault} for case in cases]:
        try:
            result = estimate(with_changes(problem, case, "--vary"), measured_s=measured_s)
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


def _one_fault(faults: list[str] | None) -> str | None:
    """Return the fault of the step; a `SpecError` for several, which are not priced together."""
    if faults and len(faults) > 1:
        what = f"{', '.join(faults)} are not priced together"
        raise SpecError.single("--fault", "", what, "give one, or ask moesim whatif for each beside the base")
    return faults[0] if faults and faults[0] != "none" else None


def _with_fault(found: Faulted, before: Estimate, as_json: bool, output: Path | None) -> None:
    """Print the step with the fault beside the one without."""
    from moesim.estimator import estimate
    from moesim.report.faults import fault_table

    after = estimate(found.problem)
    plain = after.to_dict() | {"fault": found.to_dict() | {"step_time_s_without": before.step_time_s}}
    grammar.deliver(plain, fault_table(found, before, after), as_json, output)
