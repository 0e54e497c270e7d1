"""``moesim calibrate gemm`` and its siblings: constants of kernels from measurements."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from moesim.base.files import write_atomically
from moesim.cli import grammar

HELP = """Fit the constants of a family of kernels to measurements and write them as an overlay.

SOURCE is aiconfigurator (the tables of the package aiconfigurator-core; aiconfigurator:vllm for another framework), or a
CSV (docs/kernel_tables.md lists its columns). With a few rows of one's own the constants stay near those that the GPU has
so far; rows that cannot be, or that contradict the others, are dropped with a count.
"""


def run(family: str, gpu: str, source: str, output: Path | None) -> None:
    """Fit, and write or print the overlay."""
    from moesim.calibrate.families import FAMILIES
    from moesim.calibrate.family import calibrate
    from moesim.calibrate.overlay import overlay_text
    from moesim.spec import library

    grammar.writable(out=output)
    name = library.find("gpus", gpu.lower())
    words = ["moesim", "calibrate", family, "--gpu", name, "--from", source]
    words += ["--out", str(output)] if output is not None else []
    command = shlex.join(words)
    made = calibrate(FAMILIES[family], name, source, command).overlay
    text = overlay_text(made)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text)
    counts = ", ".join(f"{count:,} {what}" for what, count in made.rows.items())
    print(f"rows: {counts}", file=sys.stderr)
    for reason, count in sorted(made.dropped.items()):
        print(f"dropped {count:,}: {reason}", file=sys.stderr)
    for which, one in made.scores.items():
        told = f"median {one.median:.1%}, p90 {one.p90:.1%}, bias {one.bias:+.1%}"
        print(f"{which} ({one.count:,}): {told}", file=sys.stderr)
    if made.kept:
        print(f"not in the file, too few rows to move them: {', '.join(made.kept)}", file=sys.stderr)
    if made.note:
        print(made.note, file=sys.stderr)


GpuOption = Annotated[str, typer.Option("--gpu", metavar="GPU", help="GPU that was measured.")]
SourceOption = Annotated[str, typer.Option("--from", metavar="SOURCE", help="aiconfigurator[:framework], or a CSV.")]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the overlay here.")]


def register(app: typer.Typer) -> None:
    """Add the families of kernels to ``moesim calibrate``."""

    @app.command("gemm", help=HELP)
    def gemm(gpu: GpuOption, source: SourceOption, out: OutOption = None) -> None:
        run("gemm", gpu, source, out)

    @app.command("grouped-gemm", help=HELP)
    def grouped(gpu: GpuOption, source: SourceOption, out: OutOption = None) -> None:
        run("grouped-gemm", gpu, source, out)

    @app.command("attention", help=HELP)
    def attention(gpu: GpuOption, source: SourceOption, out: OutOption = None) -> None:
        run("attention", gpu, source, out)

    @app.command("memory", help=HELP)
    def memory(gpu: GpuOption, source: SourceOption, out: OutOption = None) -> None:
        run("memory", gpu, source, out)

    @app.command("points", help="Draw the measured kernels that `moesim kernel` shows beside a price.")
    def points(
        out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Write a table for each family here.")],
        source: SourceOption = "aiconfigurator",
    ) -> None:
        from moesim.base.errors import SpecError
        from moesim.base.files import write_atomically
        from moesim.calibrate.points import COLUMNS, sampled

        if not out.is_dir():
            raise SpecError.single("--out", "", f"there is no folder '{out}'", "make it, or name another")
        for family in COLUMNS:
            write_atomically(out / f"{family}.csv", sampled(family, source))
