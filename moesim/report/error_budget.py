"""Table and figure of where errors of steps come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from moesim.studies.error_budget import GROUPS

SENSITIVITIES = ("kernels", "messages", "host", "overlap", "skew")


def budget_columns(table: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and cells of the table of errors, per cent of the step; one standard error each."""
    head = ["family", "runs", *GROUPS, "together", "found", "not explained"]
    rows = [
        [
            str(one["family"]),
            str(one["rows"]),
            *(_percent(one["errors"][name]) for name in GROUPS),
            *(_percent(one[name]) for name in ("expected", "found", "left")),
        ]
        for one in table
    ]
    return head, rows


def sensitivity_columns(table: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and cells of the table of sensitivities."""
    head = ["family", *SENSITIVITIES]
    return head, [[str(one["family"]), *(f"{one['sensitivity'][name]:.2f}" for name in SENSITIVITIES)] for one in table]


def _percent(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def budget_tables(table: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Errors by group, and how far each group moves a step."""
    shown = []
    for title, (head, rows) in (
        ("one standard error of a step, by what it comes from", budget_columns(table)),
        (
            "what the step moves by: share of the critical path; overlap: gain; skew: elasticity",
            sensitivity_columns(table),
        ),
    ):
        made = Table(title=title, title_justify="left")
        for name in head:
            made.add_column(name, justify="left" if name == "family" else "right")
        for row in rows:
            made.add_row(*row)
        shown.append(made)
    return shown


def budget_figure(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a stacked bar a family: parts of the expected error by their variance, what is left, and what was found."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "moesim", "font.size": 9}):
        figure = Figure(figsize=(10, 0.45 * len(table) + 1.4), layout="constrained")
        axes = figure.subplots()
        names = [f"{one['family']} ({one['rows']})" for one in table]
        starts = [0.0] * len(table)
        for index, group in enumerate((*GROUPS, "not explained")):
            parts = [_parts(one)[group] for one in table]
            axes.barh(
                names, parts, left=starts, color=f"C{index}" if group != "not explained" else "lightgrey", label=group
            )
            starts = [start + part for start, part in zip(starts, parts, strict=True)]
        axes.plot([100 * one["found"] for one in table], names, "k|", markersize=16, label="found")
        axes.invert_yaxis()
        axes.set_xlabel("one standard error of a step [%]; parts by their share of the variance")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def _parts(one: Mapping[str, Any]) -> dict[str, float]:
    """Lengths of the parts of a bar, in per cent: variances add, so each takes its share of the whole."""
    variances = {name: one["errors"][name] ** 2 for name in GROUPS} | {"not explained": one["left"] ** 2}
    total = sum(variances.values())
    whole = 100 * total**0.5
    return {name: whole * value / total if total else 0.0 for name, value in variances.items()}
