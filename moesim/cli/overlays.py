"""How the verbs of ``moesim calibrate`` hand over what they fitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from moesim.base.files import write_atomically

if TYPE_CHECKING:
    from moesim.calibrate.overlay import Overlay


def deliver(made: Overlay, out: Path | None) -> None:
    """Write or print an overlay, and tell on stderr its rows, what was dropped and why, and its errors."""
    from moesim.calibrate.overlay import overlay_text

    if out is None:
        typer.echo(overlay_text(made), nl=False)
    else:
        write_atomically(out, overlay_text(made))
    counts = ", ".join(f"{count:,} {what}" for what, count in made.rows.items())
    typer.echo(f"rows: {counts}", err=True)
    for reason, count in sorted(made.dropped.items()):
        typer.echo(f"dropped {count:,}: {reason}", err=True)
    for which, one in made.scores.items():
        told = f"median {one.median:.1%}, p90 {one.p90:.1%}, bias {one.bias:+.1%}"
        typer.echo(f"{which} ({one.count:,}): {told}", err=True)
    if made.kept:
        typer.echo(f"kept at their prior, too few rows: {', '.join(made.kept)}", err=True)
    if made.family == "steps" and made.note:
        typer.echo(made.note, err=True)
