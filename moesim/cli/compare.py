"""``moesim compare``: scenarios or variants side by side, term by term."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.cli.varied import apart, lists

HELP = """Set scenarios, or one scenario and its variants, side by side: what each term of the step gains or loses.

The first column is the base: the first scenario as it stands, with what --set changes in all of them.
"""
Scenarios = Annotated[
    list[str] | None, typer.Argument(metavar="[SCENARIO]...", help="Scenario files, or names of shipped ones.")
]


def command(
    scenarios: Scenarios = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.VaryOption = None,
    reoptimise: grammar.ReoptimiseOption = None,
    price: grammar.PriceOption = None,
    measured: grammar.MeasuredOption = None,
    plot: grammar.PlotOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    fixed = grammar.assignments(changes, "--set")
    variants = grammar.variants(vary)
    names = list(dict.fromkeys(scenarios or ()))
    if len(names) < 2 and not vary:
        raise SpecError.single("", "", "one case has nothing beside it", "give a second SCENARIO, or --vary PATH=A,B")
    apart(lists(vary), "--vary")
    costs = grammar.price(price)
    grammar.drawable(plot)
    grammar.writable(plot=plot, output=output)
    first = grammar.problem_of(names[0] if names else None, model, cluster)
    problems = {(names[0] if names else first.name): first}
    problems |= {name: grammar.problem_of(name, None, None) for name in names[1:]}
    if fixed:
        problems = {name: problem.with_changes(fixed) for name, problem in problems.items()}

    from moesim.studies.meaning import sound

    sound(list(problems.values()), lists(vary), "--vary")

    from moesim.report.compare import comparison_table
    from moesim.studies.compare import comparison

    beside = grammar.measured_step(measured, next(iter(problems.values())))
    found = comparison(problems, variants, reoptimise=grammar.field_names(reoptimise), price=costs)
    if plot is not None:
        from moesim.report.figures import breakdown

        breakdown({case.name: case.answer for case in found.cases if case.answer is not None}).save(plot)
    grammar.deliver(*grammar.with_basis(found.to_dict(), comparison_table(found), found.base, beside), as_json, output)
