"""``moesim matrix``: what each training method does to each bottleneck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import Collector, SpecError, did_you_mean
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.matrix.situation import Situation

HELP = """Derive the trade-off matrix: methods against bottlenecks, + reduces, - adds, and a triangle where it depends.

Without --scenario over many models and clusters, beside the published matrix; with it for one model, cluster and strategy.
"""
ENDINGS = (".svg", ".png", ".pdf", ".csv", ".html", ".json", ".txt")
NAMES = "NAME[,NAME]"


def command(
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", metavar="SCENARIO", help="A scenario file, or the name of a shipped one."),
    ] = None,
    changes: grammar.SetOption = None,
    methods: Annotated[str | None, typer.Option("--methods", metavar=NAMES, help="Columns to derive.")] = None,
    bottlenecks: Annotated[str | None, typer.Option("--bottlenecks", metavar=NAMES, help="Rows to derive.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="The second set of methods too.")] = False,
    cell: Annotated[
        str | None, typer.Option("--cell", metavar="METHOD,BOTTLENECK", help="The evidence behind one cell.")
    ] = None,
    size: Annotated[bool, typer.Option("--size", help="Sizes in place of signs.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the scenarios that are drawn.")] = 0,
    as_json: grammar.JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", "--output", metavar="FILE", help=f"Write the answer: {', '.join(ENDINGS)}."),
    ] = None,
) -> None:
    """Run the verb."""
    grammar.suffixed(output, ENDINGS)
    grammar.writable((), output=output)
    columns, rows = _chosen(methods, bottlenecks, everything, cell)
    situations = _situations(scenario, changes, seed)

    from moesim.matrix.answer import answer

    found = answer(situations, columns, rows, own=scenario)
    if output is not None and output.suffix in (".svg", ".png", ".pdf"):
        from moesim.report.matrix_figure import draw

        draw(found, output)
        return
    if output is not None and output.suffix in (".csv", ".html"):
        from moesim.base.files import write_atomically
        from moesim.report.matrix import csv_text
        from moesim.report.matrix_page import page

        write_atomically(output, csv_text(found, size) if output.suffix == ".csv" else page(found))
        return
    if grammar.wants_json(as_json, output):
        grammar.deliver(found.to_dict(evidence=cell is not None), None, as_json, output)
        return
    from moesim.report import matrix as report

    grammar.deliver(None, report.evidence(found) if cell else report.table(found, size), as_json, output)


def _chosen(
    methods: str | None, bottlenecks: str | None, everything: bool, cell: str | None
) -> tuple[list[str], list[str]]:
    """Names of the columns and rows to derive."""
    from moesim.matrix.bottlenecks import rows
    from moesim.matrix.methods import columns

    problems = Collector()
    if cell is not None:
        if methods is not None or bottlenecks is not None:
            problems.add("--cell", "", "names one method and one bottleneck", "leave out --methods and --bottlenecks")
        parts = [part.strip() for part in cell.split(",")]
        if len(parts) != 2:
            problems.add("--cell", "", f"'{cell}' is not METHOD,BOTTLENECK", "write for example mxfp8,buffers")
        problems.raise_if_any()
        methods, bottlenecks = parts
    where = ("--cell", "--cell") if cell is not None else ("--methods", "--bottlenecks")
    known = columns(second=everything or methods is not None)
    found = (
        _named(methods, known, where[0], "method", problems),
        _named(bottlenecks, rows(), where[1], "bottleneck", problems),
    )
    problems.raise_if_any()
    return found


def _named(text: str | None, known: list[str], where: str, kind: str, problems: Collector) -> list[str]:
    if text is None:
        return known
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if not wanted:
        problems.add(where, "", f"names no {kind}", f"known: {', '.join(known)}")
    for name in wanted:
        if name not in known:
            problems.add(where, "", f"no {kind} '{name}'", did_you_mean(name, known))
    return [name for name in known if name in wanted]


def _situations(scenario: str | None, changes: list[str] | None, seed: int) -> list[Situation]:
    if scenario is None:
        if changes:
            raise SpecError.single("--set", "", "changes a scenario", "give --scenario")
        from moesim.matrix.ensemble import Ensemble, situations

        return situations(Ensemble(seed=seed))
    from moesim.matrix.own import own_situations

    return own_situations(grammar.changed_problem(scenario, None, None, changes))
