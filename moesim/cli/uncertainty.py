"""``moesim uncertainty``: a step with what is not known drawn at random."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar

HELP = """Draw what is not known of a step at random: percentiles, and how much of the variance each constant is to blame for.

Constants that no calibration covers spread by the kind of their source, prices by the residuals of their calibration. All
draws are columns of one batch. A file ending in .csv or .parquet gets every draw.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    samples: Annotated[int, typer.Option("--samples", metavar="N", help="How many draws.")] = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draws.")] = 0,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of the table.")] = 12,
    plot: grammar.PlotOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.drawable(plot)
    grammar.writable((*grammar.ANSWERS, *grammar.TABLES), plot=plot, output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report import uncertainty as report
    from moesim.studies.uncertainty import uncertainty

    found = uncertainty(problem, samples, seed)
    if plot is not None:
        report.histogram(found).save(plot)
    output = grammar.written(output, lambda path: report.write_samples(path, found))
    grammar.deliver(found.to_dict(), report.uncertainty_table(found, top), as_json, output)
