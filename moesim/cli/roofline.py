"""``moesim roofline``: every operation of a step beside the rates of its GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Draw every operation of a step on the roofline of its GPU, and list them.

FLOP over HBM bytes against FLOP/s for matrix products and attention; bytes per second for memory-bound kernels and
messages. Roofs are those of the datasheet; a point's area is its share of the step.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    as_json: grammar.JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", "--output", metavar="FILE", help="Draw into an .svg, .png or .pdf.")
    ] = None,
) -> None:
    """Run the verb."""
    grammar.writable((), output=output)

    from moesim.report.roofline import SUFFIXES, draw, table
    from moesim.studies.roofline import roofline

    if output is not None and output.suffix not in SUFFIXES:
        what = f"'{output}' is no picture"
        raise SpecError.single("--out", "", what, f"end it in {', '.join(SUFFIXES)}")
    problem = grammar.changed_problem(scenario, model, cluster, changes)
    found = roofline(problem)
    if output is not None:
        draw(found, output)
    grammar.deliver(found.to_dict(), table(found), as_json, None)
