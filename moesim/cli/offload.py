"""``moesim offload``: whether the link to the host hides what is kept there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moesim.cli import grammar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from moesim.studies.offloading import Chunk, HostUpdate, Offloading

HELP = """Put experts, activations or the optimizer on the host, and say whether the link hides it.

Each rate of --h2d is a row: what a chunk copies and computes beside, what of the copy is exposed, what the step gains or
loses, memory freed, and from how many tokens an expert on its products hide the copy of its weights.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    what: Annotated[str, typer.Option("--what", help="experts, activations or optimizer.")] = "experts",
    h2d: Annotated[
        str | None,
        typer.Option("--h2d", metavar="RATE,...", help="Of the link per direction, such as 450GB/s,176GB/s."),
    ] = None,
    share: Annotated[float, typer.Option("--share", min=0.01, max=1, help="What part of it.")] = 1.0,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.studies.offloading import offloading

    beside = grammar.measured_step(measured, problem)
    found = offloading(problem, what, grammar.values(h2d or ""), share)
    grammar.deliver(*grammar.with_basis(found.to_dict(beside), _table(found), found.base, beside), as_json, output)


def _table(found: Offloading) -> RenderableType:
    from rich.table import Table

    from moesim.report.compare import change
    from moesim.report.estimate import gibibytes

    table = Table(title=f"{found.share:.0%} of the {found.what} on the host", title_justify="left")
    for name in ("link", "chunk"):
        table.add_column(name)
    for name in ("copies, GiB", "computing", "copying", "exposed", "step", "frees GiB", "tokens/expert", "break-even"):
        table.add_column(name, justify="right")
    for one in found.links:
        worst = max(one.chunks, key=lambda chunk: chunk.exposed_s, default=None)
        cells = _copied(one.update or worst)
        tokens = "" if one.tokens_per_expert is None else f"{one.tokens_per_expert:,.0f}"
        even = "" if one.break_even_tokens is None else f"{one.break_even_tokens:,.0f}"
        table.add_row(one.link, *cells, change(one.added_s), gibibytes(one.freed_bytes), tokens, even)
    return table


def _copied(one: Chunk | HostUpdate | None) -> tuple[str, ...]:
    """What is copied beside what: the cells of a row."""
    from moesim.report.estimate import gibibytes, seconds
    from moesim.studies.offloading import Chunk

    if one is None:
        return ("",) * 5
    return (
        f"{one.kind} of stage {one.stage}" if isinstance(one, Chunk) else "update on the CPU",
        gibibytes(one.copied_bytes),
        seconds(one.computing_s),
        seconds(one.copying_s),
        seconds(one.exposed_s) if one.exposed_s else "hidden",
    )
