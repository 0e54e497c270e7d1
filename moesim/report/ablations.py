"""Tables of published ablations beside their estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.validate import listed, share
from moesim.studies.ablations import Scored

COUNTS = ("pairs", "counted", "right", "right_share", "size_error")


def ablation_tables(
    rows: Sequence[Scored], groups: Sequence[Mapping[str, Any]], omitted: Mapping[str, int]
) -> RenderableType:
    """Directions and sizes by group, the pairs that are off, and what is no pair."""
    estimated = sum(row.status == "estimated" for row in rows)
    told = Text(f"{len(rows)} rows, {estimated} estimated; left out: " + (listed(omitted) or "none"))
    return Group(_groups(groups), _pairs(rows), told)


def effect(value: float | None) -> str:
    """A logarithm as people read it: the change in per cent."""
    return "" if value is None else share(math.expm1(value), sign=True)


def verdict(row: Scored) -> str:
    """Whether the direction is right; small effects have none."""
    return "small" if row.right is None else "right" if row.right else "wrong"


def _groups(groups: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="effects of methods, published and predicted", title_justify="left")
    for name in (by := [name for name in groups[0] if name not in COUNTS]):
        table.add_column(name)
    for name in ("pairs", "above 3 %", "right direction", "share", "median error of the size"):
        table.add_column(name, justify="right")
    for group in groups:
        table.add_row(
            *(str(group[name]) for name in by),
            str(group["pairs"]),
            str(group["counted"]),
            str(group["right"]),
            share(group["right_share"]),
            share(group["size_error"]),
            style="bold" if group is groups[-1] else "",
        )
    return table


def _pairs(rows: Sequence[Scored]) -> Table:
    table = Table(title="pairs", title_justify="left")
    for name in ("pair", "method", "metric", "published", "predicted", "direction", "what moves"):
        table.add_column(name, justify="right" if name in ("published", "predicted") else "left")
    for row in rows:
        if row.status == "estimated":
            effects = (effect(row.published_effect), effect(row.predicted_effect))
            table.add_row(row.pair_id, row.method, row.metric, *effects, verdict(row), row.moves)
        elif row.status == "refused":
            table.add_row(row.pair_id, row.method, row.metric, "", "", "refused", row.reason)
    return table
