"""``moesim fabric``: a fabric at a glance, and what the groups of a run get of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moesim.cli import grammar

HELP = """Look at a fabric: its tiers and drawing, and what the groups of a run get of it."""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A fabric; NAME:2 oversubscribes its leaves two to one.")],
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes that it joins.")],
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Kind of node; left out, one that usually has it.")
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(
            "--fault",
            metavar="KIND:TARGET",
            help="nic:node3.rail5, rail:5, switch:leaf2, link:leaf0-spine0.3, node:3 or degrade:spine=0.5.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: .svg, .png or .pdf.")] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Show the tiers, bisection, diameter and oversubscription of a fabric, and draw it."""
    grammar.writable(output=output, plot=plot)

    from moesim.report.fabric import fabric_tables
    from moesim.studies.fabric_view import fabric_view

    view = fabric_view(name, nodes, node, fault)
    if plot is not None:
        from moesim.report.fabric_drawing import draw

        draw(view, plot)
    grammar.deliver(view.to_dict(), fabric_tables(view), as_json, output)


@app.command("groups")
def groups(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Show, for every parallel axis, its tiers, bandwidth per rank, contention and bytes of a step."""
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.fabric import group_table
    from moesim.studies.fabric_groups import fabric_groups

    found = fabric_groups(problem)
    grammar.deliver(found.to_dict(), group_table(found), as_json, output)
