"""``moesim dispatch``: the expert all-to-all of a job, by transport, SMs or anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moesim.base.words import changes_in_words
from moesim.cli import grammar
from moesim.cli.varied import varied_problem

if TYPE_CHECKING:
    from rich.console import RenderableType

    from moesim.studies.dispatching import Exchanges

HELP = """Price the expert exchange of a job: its legs, SMs, buffers, what of it the step sees, what kernels lose beside it.

--vary takes any path of --set: transport=nccl-alltoall,deepep, ep=4,8,16, or comm_sms=4,12,24, the SMs of every transport
whose kernels copy by SMs. A transport without a profile for the network at hand is refused, with the reason.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    vary: grammar.VaryOption = None,
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    cases = grammar.variants(vary)
    grammar.writable(output=output)
    problem = varied_problem(scenario, model, cluster, changes, vary, listed=True)

    from moesim.studies.dispatching import exchanges

    beside = grammar.measured_step(measured, problem)
    found = exchanges(problem, cases)
    plain, best = found.to_dict(beside), found.best
    told = grammar.with_basis(plain, _table(found), best.answer, beside, changes_in_words(best.case))
    grammar.deliver(*told, as_json, output)


def _table(found: Exchanges) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from moesim.report.estimate import gibibytes, seconds

    table = Table()
    for name in ("case", "transport", "ranks, domains", "dispatch", "combine", "a step", "exposed", "SMs", "kernels"):
        table.add_column(name, justify="left" if name in ("case", "transport") else "right")
    for name in ("step", "tokens/s", "peak GiB"):
        table.add_column(name, justify="right")
    for one in found.cases:
        answer = one.answer
        table.add_row(
            changes_in_words(one.case) or "as it stands",
            one.transport,
            f"{one.ranks}, {one.domains}",
            seconds(one.leg_s["dispatch"]),
            seconds(one.leg_s["combine"]),
            seconds(one.total_s),
            f"{one.exposed_s / answer.step_time_s:.1%}",
            f"{one.num_sms:.0f}",
            f"+{one.kernel_slowdown:.1%}",
            seconds(answer.step_time_s),
            f"{answer.tokens_per_s_per_gpu:,.0f}",
            gibibytes(answer.memory.peak_bytes) + ("" if answer.feasible else " !"),
        )
    refused = [
        Text(f"refused {changes_in_words(case)}: {line}", style="red") for case, why in found.refused for line in why
    ]
    return Group(table, *refused, Text(found.recommendation, style="bold"))
