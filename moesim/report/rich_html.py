"""Answers whose tables for the terminal serve notebooks too."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

from rich.console import Console, RenderableType

TABLES = {
    "Budget": ("scaling", "budget_table"),
    "CheckpointAnswer": ("checkpoint", "checkpoint_table"),
    "Diagnosis": ("diagnose", "diagnosis_table"),
    "Explanation": ("explain", "tables"),
    "FabricGroups": ("fabric", "group_table"),
    "FabricView": ("fabric", "fabric_tables"),
    "Fit": ("fit", "fit_table"),
    "Roofline": ("roofline", "table"),
    "Uncertainty": ("uncertainty", "uncertainty_table"),
}
"""Module below ``moesim.report`` and function that makes the tables, by name of the type."""
WIDTH = 140
"""Letters of a line."""
STYLE = "white-space:pre;line-height:1.2;font-family:ui-monospace,monospace;font-size:12px;overflow-x:auto"
"""Notebooks break the lines of a ``pre`` unless it says otherwise."""
BODY = f"<pre style='{STYLE}'>{{code}}</pre>"


def renderable(found: Any) -> RenderableType:
    """The tables for a terminal."""
    module, name = TABLES[type(found).__name__]
    made: RenderableType = getattr(import_module(f"moesim.report.{module}"), name)(found)
    return made


def html(found: Any) -> str:
    """The same as HTML."""
    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False, force_jupyter=False)
    console.print(renderable(found))
    return console.export_html(inline_styles=True, code_format=BODY)
