"""Changes beside the base: the terms they move, the groups that a fault slows, and whether changes add up."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.compare import add_cases, change, comparison_table, headings
from moesim.report.estimate import NAMES, seconds
from moesim.report.faults import groups_table
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
    title = "what the step would lose without each class: the job as it stands, then what each case adds"
    table = Table(title=title, title_justify="left")
    add_cases(table, headings([case.name for case in cases])[1])
    deltas = [found.exposed_deltas_s(case) for case in cases[1:]]
    for name, value in base.exposed_s.items():
        table.add_row(NAMES[name], seconds(max(value, 0.0)), *(change(delta[name]) for delta in deltas))
    return table
