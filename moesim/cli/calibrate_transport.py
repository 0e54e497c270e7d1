"""``moesim calibrate transport``: constants of DeepEP from the tables of aiconfigurator-core."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar

HELP = """Fit the constants of DeepEP to measured dispatches and combines: inside a node, and across 2 and 4 nodes."""


def command(
    source: Annotated[str, typer.Option("--from", metavar="SOURCE", help="aiconfigurator-core.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="GPU that was measured.")] = "h100-sxm-80gb",
    transport: Annotated[str, typer.Option("--transport", metavar="NAME")] = "deepep",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the overlay there.")] = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=out)

    from moesim.calibrate.overlay import overlay_text, write_overlay
    from moesim.calibrate.transports import transport_overlay
    from moesim.traces.aiconfigurator_nccl import PACKAGE

    if source != PACKAGE:
        raise SpecError.single("--from", "", f"no tables of a transport in '{source}'", f"give {PACKAGE}")
    overlay = transport_overlay(transport, gpu)
    if out is None:
        typer.echo(overlay_text(overlay), nl=False)
    else:
        write_overlay(overlay, out)
