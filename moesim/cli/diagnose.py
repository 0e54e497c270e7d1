"""``moesim diagnose``: which term explains the gap between a measured step and its estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Set a measured step beside its estimate: normal, slow or fast, what is missing, and what to check first.

--measured is a step (12.3s), tokens (1234 tok/s of a GPU, 1.2M tok/s total), TFLOP/s or MFU (245 TFLOP/s, 9.5%; --convention
says how their FLOPs are counted). Gaps are priced: what the run would take if it did otherwise than it is said to. With
--trace, where a measured step of one rank spends more; with --reference, what others published.
"""


def command(
    measured: Annotated[
        str, typer.Option("--measured", metavar="STEP", help="24.2s, '1234 tok/s', '245 TFLOP/s' or '9.5%'.")
    ],
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="A profile of the run, one rank.")
    ] = None,
    stage: Annotated[int | None, typer.Option("--stage", metavar="N", help="Pipeline rank of the trace.")] = None,
    convention: Annotated[
        str, typer.Option("--convention", help="Of measured FLOPs: causal, full or 6n-plus-attn.")
    ] = "causal",
    reference: Annotated[bool, typer.Option("--reference", help="Show published runs of the model.")] = False,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    if stage is not None and trace is None:
        raise SpecError.single("--stage", "", "is that of a trace", "give --trace FILE")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.diagnose import diagnosis_table, trace_line
    from moesim.studies.diagnose import diagnose

    found = diagnose(problem, measured, convention, reference)
    plain, shown = found.to_dict(), diagnosis_table(found)
    if trace is not None:
        from rich.console import Group

        from moesim.cli.trace_model import matched
        from moesim.report.trace_model import match_tables

        beside = matched(trace, problem, stage or 0)
        plain = plain | {"trace": beside.to_dict(), "missing_in_trace": beside.missing}
        shown = Group(shown, trace_line(beside), match_tables(beside))
    grammar.deliver(plain, shown, as_json, output)
