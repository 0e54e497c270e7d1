"""Changes beside the base: the terms they move, the groups that a fault slows, and whether changes add up."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from moesim.report.compare import change, comparison_table
from moesim.report.faults import groups_table
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
