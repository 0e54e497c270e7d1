"""Rows in groups by the values of some of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from moesim.base.errors import SpecError, did_you_mean

Row = TypeVar("Row")


def in_groups(
    rows: Sequence[Row],
    by: Sequence[str],
    columns: Mapping[str, Callable[[Row], Any]],
    of: str,
    summary: Callable[[Sequence[Row]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Summary of each group, in the order of its key, and of all rows together last.

    Parameters
    ----------
    rows, by
        What is grouped, and the names of the columns.
    columns
        What rows can be grouped by: the value of each column of a row.
    of, summary
        What rows are called in a message; what is said of a group.

    Raises
    ------
    SpecError
        For a column that is none.
    """
    for name in by:
        if name not in columns:
            raise SpecError.single("--group-by", "", f"no column '{name}'{of}", did_you_mean(name, tuple(columns)))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(columns[name](row) for name in by), []).append(row)
    keys = sorted(groups, key=lambda key: tuple(map(str, key)))
    found = [dict(zip(by, key, strict=True)) | summary(groups[key]) for key in keys]
    return [*found, dict.fromkeys(by, "all") | summary(rows)]
