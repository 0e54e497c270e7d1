"""``moesim calibrate runs``: factors on what software takes, from measured steps."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar, overlays

HELP = """Fit what each family of software takes to measured steps, and how far steps are off beyond their prices.

Without --runs, the published runs that come with moesim. Every error that is told is of a model on a GPU that the fit has not
seen; a family whose fit is no better there keeps the values of its sources. hardware_specs/step_fits.yaml declares what may be
fitted. Use the file with --set calibrations=FILE.
"""


def command(
    runs: Annotated[Path | None, typer.Option("--runs", metavar="CSV", help="A table as in docs/run_table.md.")] = None,
    models: grammar.ModelsOption = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes.")] = os.cpu_count() or 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the overlay here.")] = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=out)
    if runs is not None and not runs.is_file():
        raise SpecError.single("--runs", "", f"there is no file '{runs}'", "name a CSV as in docs/run_table.md")
    grammar.folder(models)

    from moesim.studies.step_fit import fit_runs
    from moesim.studies.validate import shipped_table

    words = ["moesim", "calibrate", "runs", *(["--runs", str(runs)] if runs else [])]
    words += ["--models", str(models)] if models else []
    words += ["--out", str(out)] if out else []
    overlays.deliver(fit_runs(runs or shipped_table(), jobs, models, shlex.join(words)), out)
