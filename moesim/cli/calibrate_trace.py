"""``moesim calibrate trace``: constants from the kernels of traces."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from moesim.base.errors import SpecError, did_you_mean
from moesim.cli import grammar, overlays
from moesim.cli.trace import RulesOption, Traces, progress, rules_of

HELP = """Fit the constants of a GPU to the kernels of traces, and those of its links to collectives of several ranks.

Kernels count that run alone, whose operator tells their shape (record_shapes=True), and that the library would choose
again. Collectives count from the last arrival on, so all ranks of a group are needed. One family goes to the file of
--out; several go to files beside it that carry the family in their name.
"""


def command(
    traces: Traces,
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="GPU that the traces were taken on.")],
    family: Annotated[str | None, typer.Option("--family", help="Only gemm, attention, memory or collectives.")] = None,
    rules: RulesOption = None,
    out: grammar.OverlayOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=out)

    from moesim.spec import library
    from moesim.studies.trace_calibration import KINDS, trace_calibration
    from moesim.studies.trace_machine import gpu_in
    from moesim.studies.trace_summary import works
    from moesim.traces.ranks import across

    if family is not None and family not in KINDS:
        raise SpecError.single("--family", "", f"no family '{family}'", did_you_mean(family, KINDS))
    name = library.find("gpus", gpu.lower())
    words = ["moesim", "calibrate", "trace", *(path.name for path in traces), "--gpu", name]
    words += (["--family", family] if family else []) + (["--out", str(out)] if out else [])
    with progress() as opened, works(traces, rules_of(rules), opened) as read:
        told = gpu_in(read)
        if told is not None and told != name:
            raise SpecError.single(
                "--gpu", "", f"the traces were taken on {told}, not on {name}", f"write --gpu {told}"
            )
        beside = across(read) if sum(len(work.table.devices) for work in read) > 1 else None
        found = trace_calibration(read, beside, name, shlex.join(words), (family,) if family else KINDS)
    for one in found.overlays:
        target = out
        if out is not None and len(found.overlays) > 1:
            target = out.with_name(f"{out.stem}-{one.family}{out.suffix}")
        if target is not None:
            typer.echo(f"{one.family}: {target}", err=True)
        overlays.deliver(one, target)
    for kind, why in found.refused.items():
        typer.echo(f"{kind} is not fitted: {why}", err=True)
