"""``moesim calibrate collectives``: corrections of NCCL's predictions from measured tables and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar, overlays

HELP = """Fit the corrections of collectives to a table, a log of nccl-tests, or the package aiconfigurator-core.

A fit to your own rows starts from the corrections that the node has, and writes those that the rows change; --fresh, and the
package, start from what NCCL itself predicts.
"""


def command(
    source: Annotated[str, typer.Option("--from", metavar="SOURCE", help="CSV, log, or aiconfigurator-core.")],
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="The node that was measured.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="Or its GPU: the usual node.")] = None,
    fabric: Annotated[
        str | None, typer.Option("--fabric", metavar="FABRIC", help="Fit the network between nodes of that kind.")
    ] = None,
    match: Annotated[
        str,
        typer.Option("--match", metavar="TEXT", help="Rows whose source starts with it; with --check of that file."),
    ] = "",
    operation: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="Operation of a log that does not say it.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--source", metavar="KEY", help="Key in sources.yaml of where the rows come from.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start from NCCL's own predictions.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", metavar="FILE", help="Rows that are not fitted: their errors, and their sizes as covered."
        ),
    ] = None,
    out: grammar.OverlayOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=out)

    from moesim.calibrate import collective_overlay as fitting
    from moesim.spec import library
    from moesim.spec.spellings import node_of
    from moesim.traces.aiconfigurator_nccl import PACKAGE
    from moesim.traces.collective_files import read_collective_file
    from moesim.traces.collective_table import operation_named

    if (node is None) == (gpu is None):
        raise SpecError.single("--node", "", "one of --node and --gpu tells what was measured", "write --node hgx-h100")
    usual = node or node_of(library.find("gpus", str(gpu).lower()))
    if usual is None:
        raise SpecError.single("--gpu", "", f"no node of {gpu} is known", "name one with --node")
    spec = library.get("nodes", usual.lower())
    target = library.find("fabrics", fabric) if fabric else spec.name
    scopes = fitting.NET_SCOPES if fabric else fitting.NODE_SCOPES
    collective = operation_named(operation, "--op") if operation is not None else None
    if collective is not None and source == PACKAGE:
        raise SpecError.single("--op", "", f"is for logs; {PACKAGE} tells its operations", "leave it out")
    if fresh and source == PACKAGE:
        raise SpecError.single("--fresh", "", f"a fit to {PACKAGE} always starts so", "leave it out")
    table = fitting.read_measured(source, spec.gpu, collective=collective)
    rows = fitting.chosen_rows(table, spec.gpu, scopes, match if check is None else "")
    if not rows.rows:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in rows.refused.items())
        raise SpecError.single(source, "", f"no row of {spec.gpu} to fit {target}: {reasons}", "give its measurements")
    shown = Path(source).name if key and source != PACKAGE else source
    words = ["moesim calibrate collectives", f"--node {spec.name}", f"--fabric {target}" if fabric else ""]
    words += [f"--from {shown}", f"--match {match}" if match else "", f"--op {operation}" if operation else ""]
    words += [f"--check {check.name if key or source == PACKAGE else check}" if check else ""]
    words += [f"--source {key}" if key else "", "--fresh" if fresh else ""]
    words += [f"--out {out}" if out and not key and source != PACKAGE else ""]
    key = key or (fitting.PACKAGE_KEY if source == PACKAGE else Path(source).name)
    links = fitting.links_of(spec.name, fabric)
    if fresh or source == PACKAGE:
        links = fitting.bare(links)
    told = " ".join(word for word in words if word)
    overlay = fitting.collective_overlay(target, spec.gpu, links, rows, scopes, told, key)
    if check is not None:
        others = fitting.chosen_rows(read_collective_file(check), spec.gpu, scopes, match)
        overlay = fitting.checked(overlay, others.rows, links, f"{check.name} {match}".strip())
    if overlay.note:
        typer.echo(f"{source}: {overlay.note}", err=True)
    overlays.deliver(overlay, out)
