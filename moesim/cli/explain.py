"""``moesim explain``: what an estimate is made of."""

from __future__ import annotations

from moesim.cli import grammar

HELP = """Explain an estimate: every operation with its price, memory by phase, the constants that matter; --plot draws the memory of each rank."""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    plot: grammar.PlotOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.drawable(plot)
    grammar.writable(plot=plot, output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.explain import tables
    from moesim.studies.explain import explain

    explanation = explain(problem)
    if plot is not None:
        from moesim.report.figures import memory

        memory(explanation.estimate).save(plot)
    grammar.deliver(explanation.to_dict(), tables(explanation), as_json, output)
