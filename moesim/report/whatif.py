"""Changes beside the base: the terms they move, the groups that a fault slows, and whether changes add up."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.units import format_quantity
from moesim.report.compare import change, comparison_table
from moesim.report.estimate import seconds
from moesim.report.faults import groups_table
from moesim.studies.expert_offload import ExpertOffload
from moesim.studies.whatif import WhatIf


def whatif_table(found: WhatIf) -> RenderableType:
    """The comparison, and a table of groups for each fault."""
    parts: list[RenderableType] = [comparison_table(found.comparison)]
    if found.interaction_s is not None:
        told = f"all at once: {change(found.interaction_s)} beside the sum of the changes"
        parts.append(Text(told, style="bold"))
    for name, fault in found.faults.items():
        ranks = ", ".join(map(str, fault.stages)) or "none"
        parts.append(Text(f"{name}: slower pipeline ranks: {ranks}", style="bold"))
        if fault.effects:
            parts.append(groups_table(fault))
    return Group(*parts)


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
