"""``moesim calibrate transport``: constants of expert transports from measured dispatches and combines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.cli import grammar, overlays

HELP = """Fit the constants of an expert transport to measured dispatches and combines.

SOURCE is aiconfigurator-core (DeepEP, inside a node and across 2 and 4 nodes), or a CSV with the columns of
docs/collective_table.md: its fit starts from the constants that the transport has.
"""


def command(
    source: Annotated[str, typer.Option("--from", metavar="SOURCE", help="aiconfigurator-core, or a CSV.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="GPU that was measured.")] = "h100-sxm-80gb",
    transport: Annotated[str, typer.Option("--transport", metavar="NAME")] = "deepep",
    out: grammar.OverlayOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=out)

    from moesim.calibrate.own_transports import own_transport_overlay
    from moesim.calibrate.transports import transport_overlay
    from moesim.spec import library
    from moesim.traces.aiconfigurator_nccl import PACKAGE

    name, measured = library.find("transports", transport), library.find("gpus", gpu.lower())
    if source == PACKAGE:
        overlays.deliver(transport_overlay(name, measured), out)
        return
    words = f"moesim calibrate transport --transport {name} --gpu {measured} --from {source}"
    told = f"{words} --out {out}" if out else words
    overlays.deliver(own_transport_overlay(name, measured, Path(source), told), out)
