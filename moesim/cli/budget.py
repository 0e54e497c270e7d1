"""``moesim budget``: days, GPU-hours, money and energy of a whole run."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.cli.scale import node_counts

HELP = """Say what training on a number of tokens takes: days, GPU-hours, money, energy; several sizes side by side."""
SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def command(
    tokens: Annotated[str, typer.Option("--tokens", metavar="N", help="Tokens to train on, such as 14.8T or 300B.")],
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="N,N,...", help="Compare these, at the same global batch.")
    ] = None,
    price: Annotated[str | None, typer.Option("--price", metavar="2.5/h", help="Of a GPU.")] = None,
    goodput: Annotated[
        float, typer.Option("--goodput", min=0.01, max=1, help="Share of the time that makes progress.")
    ] = 1.0,
    deadline: Annotated[str | None, typer.Option("--deadline", metavar="TIME", help="Such as 30d.")] = None,
    measured: Annotated[
        str | None, typer.Option("--measured", metavar="TIME|RATE", help="A measured step in place of the estimate.")
    ] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    count = token_count(tokens)
    by = grammar.positive("--deadline", deadline, "time", "30 d")
    counts = None if nodes is None else node_counts(nodes)
    if measured is not None and counts is not None:
        raise SpecError.single("--measured", "", "was measured on one number of nodes", "leave out --nodes")
    grammar.writable(output=output)
    costs = grammar.price(price)
    if isinstance(costs, dict):
        raise SpecError.single("--price", "", f"'{price}' is for several machines", "write for example --price 2.5/h")
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.report.scaling import budget_table
    from moesim.studies.budget import budget

    step = grammar.measured_step(measured, problem)
    found = budget(problem, count, counts, goodput, costs, by, step)
    first = found.costs[0].point.answer
    assert first is not None  # of a cost
    grammar.deliver(*grammar.with_basis(found.to_dict(), budget_table(found), first, step), as_json, output)


def token_count(text: str) -> float:
    """Return a number of tokens; a `SpecError` where it is none."""
    scale = SUFFIXES.get(text[-1:].upper(), 1.0)
    try:
        value = float(text[:-1] if text[-1:].upper() in SUFFIXES else text) * scale
    except ValueError:
        value = 0.0
    if not 0 < value < 1e18:
        raise SpecError.single("--tokens", "", f"'{text}' is no number of tokens", "write for example 14.8T or 300B")
    return value
