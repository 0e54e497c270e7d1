"""``moesim check``: every rule that a scenario breaks, at once."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Check a scenario against every rule of the model, of its schedule and of its framework, without estimating it.

--framework takes a version where its rules were read, such as megatron-core==0.16; other versions are refused.
Legal: says so and exits with 0. Otherwise one line for each broken rule, with the legal values, and exit code 2.
"""
Framework = Annotated[
    str | None, typer.Option("--framework", metavar="NAME[==VERSION]", help="Ask another framework, or a version.")
]


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    framework: Framework = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    fixed = grammar.assignments(changes, "--set")
    if framework is not None and "software" in fixed:
        raise SpecError.single("--framework", "", "is --set software by another name", "write one of them")
    grammar.writable(output=output)
    problem = grammar.problem_of(scenario, model, cluster)
    if fixed:
        problem = problem.with_changes(fixed)
    if framework is not None:
        from moesim.spec.lookup import software_pinned

        problem = problem.with_changes({"software": software_pinned(framework, "--framework")}, "--framework")
    broken = problem.check()
    rows = [
        {
            "rule": one.violation.rule,
            "fields": list(one.fields),
            "message": one.violation.message,
            "legal": one.violation.legal,
            "source": one.violation.source,
            "version": _version(one.violation.source),
        }
        for one in broken
    ]
    if broken and not as_json and output is None:
        raise SpecError(problem.issue(one) for one in broken)
    answer = {
        "name": problem.name,
        "software": problem.software.name,
        "software_version": problem.software.version,
        "legal": not broken,
        "violations": rows,
    }
    grammar.deliver(answer, f"{problem.name}: legal for {problem.software.name}", as_json, output)
    if broken:
        raise typer.Exit(2)


def _version(source: str) -> str | None:
    """The version or date of what a rule was read in; None where it is arithmetic or a limit of the model."""
    from moesim.spec.check import sources

    found = sources().get(source)
    told = None if found is None else found.version or found.date
    return None if told is None else str(told)
