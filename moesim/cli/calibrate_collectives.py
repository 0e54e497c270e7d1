"""``moesim calibrate collectives``: corrections of NCCL's predictions from measured tables and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError, did_you_mean
from moesim.cli import grammar

HELP = """Fit the corrections of collectives to a table, a log of nccl-tests, or the package aiconfigurator-core."""


def command(
    source: Annotated[str, typer.Option("--from", metavar="SOURCE", help="CSV, log, or aiconfigurator-core.")],
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="The node that was measured.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="Or its GPU: the usual node.")] = None,
    fabric: Annotated[
        str | None, typer.Option("--fabric", metavar="FABRIC", help="Fit the network between nodes of that kind.")
    ] = None,
    match: Annotated[str, typer.Option("--match", metavar="TEXT", help="Rows whose source starts with it.")] = "",
    operation: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="Operation of a log that does not say it.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--source", metavar="KEY", help="Key in sources.yaml of where the rows come from.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the overlay there.")] = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=out)

    from moesim.calibrate import collective_overlay as fitting
    from moesim.calibrate.overlay import overlay_text, write_overlay
    from moesim.spec import library
    from moesim.spec.spellings import node_of
    from moesim.traces.aiconfigurator_nccl import PACKAGE
    from moesim.traces.collective_table import OPERATIONS

    if (node is None) == (gpu is None):
        raise SpecError.single("--node", "", "one of --node and --gpu tells what was measured", "write --node hgx-h100")
    usual = node or node_of(library.find("gpus", str(gpu)))
    if usual is None:
        raise SpecError.single("--gpu", "", f"no node of {gpu} is known", "name one with --node")
    spec = library.get("nodes", usual)
    target = library.find("fabrics", fabric) if fabric else spec.name
    scopes = fitting.NET_SCOPES if fabric else fitting.NODE_SCOPES
    collective = None
    if operation is not None:
        collective = OPERATIONS.get(operation.replace("-", "_"), operation)
        if collective not in OPERATIONS.values():
            raise SpecError.single("--op", "", f"no collective '{operation}'", did_you_mean(operation, OPERATIONS))
        if source == PACKAGE:
            raise SpecError.single("--op", "", f"is for logs; {PACKAGE} tells its operations", "leave it out")
    table = fitting.read_measured(source, spec.gpu, collective=collective)
    rows = fitting.chosen_rows(table, spec.gpu, scopes, match)
    if not rows.rows:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in rows.refused.items())
        raise SpecError.single(source, "", f"no row of {spec.gpu} to fit {target}: {reasons}", "give its measurements")
    shown = source if source == PACKAGE else Path(source).name
    words = ["moesim calibrate collectives", f"--node {spec.name}", f"--fabric {target}" if fabric else ""]
    words += [f"--from {shown}", f"--match {match}" if match else "", f"--op {operation}" if operation else ""]
    words += [f"--source {key}" if key else ""]
    key = key or (fitting.PACKAGE_KEY if source == PACKAGE else shown)
    links = fitting.links_of(spec.name, fabric)
    told = " ".join(word for word in words if word)
    overlay = fitting.collective_overlay(target, spec.gpu, links, rows, scopes, told, key)
    if overlay.note:
        typer.echo(f"{source}: {overlay.note}", err=True)
    if out is None:
        typer.echo(overlay_text(overlay), nl=False)
    else:
        write_overlay(overlay, out)
