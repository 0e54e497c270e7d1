"""Verbs of ``moesim trace`` that set a trace beside the model: ops, match, replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.cli.trace import RulesOption, Trace, Traces, progress, rules_of

if TYPE_CHECKING:
    from moesim.problem import Problem
    from moesim.studies.trace_match import TraceMatch

GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="GPU", help="GPU of the trace, where the file does not name a known one.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``moesim trace``."""
    app.command("ops")(ops)
    app.command("match")(match)
    app.command("replay")(replay)


def ops(
    traces: Traces,
    family: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="Only gemm, attention, nccl or another class.")
    ] = None,
    gpu: GpuOption = None,
    calibrations: grammar.CalibrationsOption = None,
    rules: RulesOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Show shapes, bytes and achieved rates of operators, beside the roofline and the calibrated prices of their GPU."""
    grammar.writable(output=output)

    from moesim.report.trace_model import ops_table
    from moesim.spec.calibration import CalibrationSpec
    from moesim.spec.validation import validate
    from moesim.spec.yaml_file import read_document
    from moesim.studies.trace_ops import traced_ops
    from moesim.studies.trace_summary import works

    own = tuple(validate(CalibrationSpec, read_document(path)) for path in grammar.files(calibrations))
    with progress() as opened, works(traces, rules_of(rules), opened) as read:
        found = traced_ops(read, gpu, family, own)
    grammar.deliver(found.to_dict(), ops_table(found), as_json, output)


def match(
    trace: Trace,
    scenario: Annotated[str, typer.Option("--scenario", metavar="SCENARIO", help="What ran: a file or a name.")],
    changes: grammar.SetOption = None,
    stage: Annotated[int, typer.Option("--stage", metavar="N", help="Pipeline rank of the trace.")] = 0,
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="Step of the profiler.")] = None,
    rules: RulesOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Match a step with its estimate: errors by operation, what either side has alone, where the steps differ."""
    grammar.writable(output=output)
    found = matched(trace, grammar.changed_problem(scenario, None, None, changes), stage, step, rules)

    from moesim.report.trace_model import match_tables

    grammar.deliver(found.to_dict(), match_tables(found), as_json, output)


def matched(
    trace: Path, problem: Problem, stage: int, step: int | None = None, rules: Path | None = None
) -> TraceMatch:
    """A step of the only trace in a file beside the estimate of a problem."""
    from moesim.studies.trace_match import trace_match
    from moesim.studies.trace_summary import works

    with progress() as opened, works([trace], rules_of(rules), opened) as read:
        if len(read) > 1:
            raise SpecError.single(str(trace), "", f"holds {len(read)} traces", "name one rank")
        return trace_match(read[0], problem, stage, step)


def replay(
    traces: Traces,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            metavar="CLASS=FACTOR",
            help="Multiply durations of a class, or all, communication, kernels, copies, host; may be repeated.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="CONSTANT=VALUE",
            help="memory_bandwidth, nvlink_bandwidth, nic_bandwidth or gemm_rate: 2x, or 900 GB/s; may be repeated.",
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="Matrix products in fp8, fp8-blockwise, mxfp8 or another format.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NODE", help="The same work on another node, such as hgx-h200.")
    ] = None,
    gpu: GpuOption = None,
    rules: RulesOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Replay the real timeline with other durations, dependencies kept: what would this step take if ...?"""
    grammar.writable(output=output)
    scales, constants = grammar.assignments(scale, "--scale"), grammar.assignments(changes, "--set")
    if cluster is not None and ":" in cluster:
        what = f"'{cluster}' names a number of nodes"
        raise SpecError.single("--cluster", "", what, f"the trace tells its ranks: write {cluster.partition(':')[0]}")

    from moesim.report.trace_model import replay_tables
    from moesim.spec import library
    from moesim.studies import trace_machine as machines
    from moesim.studies import trace_whatif as whatif
    from moesim.studies.trace_replay import Replayed, scaled
    from moesim.studies.trace_summary import works
    from moesim.traces.ranks import across

    with progress() as opened, works(traces, rules_of(rules), opened) as read:
        factors = scaled(read, scales)
        if constants or precision or cluster:
            before = machines.trace_machine(read, gpu)
            node = library.find("nodes", cluster) if cluster else None
            after = machines.machine_of(library.get("nodes", node).gpu, node) if node else before
            changed = whatif.repriced(read, before, whatif.changed_machine(after, constants), precision)
            factors = whatif.together(factors, changed)
        several = len(read) > 1 or any(len(work.table.devices) > 1 for work in read)
        found = Replayed.of(read, across(read) if several else None).replay(factors)
    grammar.deliver(found.to_dict(), replay_tables(found), as_json, output)
