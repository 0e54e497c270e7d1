"""``moesim explain``: what an estimate is made of."""

from __future__ import annotations

from moesim.cli import grammar

HELP = """Explain an estimate: every operation with its price, memory by phase, the constants that matter."""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    fixed = grammar.assignments(changes, "--set")
    grammar.writable(output=output)
    problem = grammar.problem_of(scenario, model, cluster)
    if fixed:
        problem = problem.with_changes(fixed)

    from moesim.report.explain import tables
    from moesim.studies.explain import explain

    explanation = explain(problem)
    grammar.deliver(explanation.to_dict(), tables(explanation), as_json, output)
