"""The line under an answer: the step it rests on, with interval, evidence and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from moesim.report.estimate import seconds


def basis_line(told: Mapping[str, Any]) -> Text:
    """One line of :func:`moesim.studies.basis.basis`."""
    low, high = seconds(told["low_s"]), seconds(told["high_s"])
    job = f"{told['job']} with {told['variant']}" if told["variant"] else told["job"]
    parts = [
        f"a step of {job}: {seconds(told['step_time_s'])} (90 %: {low} to {high}; evidence {told['evidence']})",
        f"bound by {told['binding']['resource']}",
    ]
    if told["measured"] is not None:
        where = "inside" if told["measured"]["inside"] else "outside"
        measured = seconds(told["measured"]["step_time_s"])
        parts.append(f"measured {measured}, {told['measured']['ratio']:.2f} x the estimate, {where} of the interval")
    return Text("; ".join(parts))
