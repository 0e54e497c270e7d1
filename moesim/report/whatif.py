"""Changes beside the base: the terms they move, the groups that a fault slows, and whether changes add up."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.units import format_quantity
from moesim.report.compare import change, comparison_table, headings
from moesim.report.estimate import NAMES, seconds
from moesim.report.faults import groups_table
from moesim.studies.expert_offload import ExpertOffload
from moesim.studies.whatif import WhatIf


def whatif_table(found: WhatIf) -> RenderableType:
    """The comparison, and a table of groups for each fault."""
    parts: list[RenderableType] = [comparison_table(found.comparison), _exposed(found)]
    if found.interaction_s is not None:
        told = f"all at once: {change(found.interaction_s)} beside the sum of the changes"
        parts.append(Text(told, style="bold"))
    for name, fault in found.faults.items():
        ranks = ", ".join(map(str, fault.stages)) or "none"
        parts.append(Text(f"{name}: slower pipeline ranks: {ranks}", style="bold"))
        if fault.effects:
            parts.append(groups_table(fault))
    return Group(*parts)


def _exposed(found: WhatIf) -> Table:
    """A row a class: what the step would lose without it, and what that becomes."""
    base = found.comparison.base
    cases = [case for case in found.comparison.cases if case.answer is not None]
    _, names = headings([case.name for case in cases])
    title = "what the step would lose without each class: the job as it stands, then what each case adds"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(Text(name.replace(", ", "\n")), justify="right", overflow="fold")
    deltas = [found.exposed_deltas_s(case) for case in cases[1:]]
    for name, value in base.exposed_s.items():
        table.add_row(NAMES[name], seconds(max(value, 0.0)), *(change(delta[name]) for delta in deltas))
    return table


def offload_table(found: ExpertOffload) -> RenderableType:
    """A row a link: what is hidden, what is exposed, and from how many rows on."""
    table = Table(
        title=f"{found.answer.name}: experts of the next layer come from the host while a layer runs",
        title_justify="left",
    )
    columns = (
        "link",
        "copy of a layer",
        "forward",
        "backward",
        "exposed",
        "rows an expert",
        "break-even",
        "frees",
        "step",
    )
    for name in columns:
        table.add_column(name, justify="right")
    step = found.answer.step_time_s
    for one in found.links:
        late = one.exposed_forward_s + one.exposed_backward_s
        table.add_row(
            format_quantity(one.rate, "bandwidth"),
            seconds(one.copy_s),
            seconds(one.forward_s),
            seconds(one.backward_s),
            "nothing" if one.hidden else f"{seconds(late)} a layer",
            f"{one.rows:,.0f}",
            f"{one.break_even_rows:,.0f}",
            format_quantity(one.freed_bytes, "bytes"),
            "as it is" if one.hidden else f"up to +{one.added_s / step:.1%}",
        )
    note = "break-even: rows of an expert in a micro-batch from which its products alone hide its copy in the forward"
    return Group(table, Text(note, style="dim"))
