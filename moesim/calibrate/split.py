"""Which rows a fit sees and which it does not: by a hash of what must not be torn apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def held_out(rows: pd.DataFrame, columns: Sequence[str], share: float = 0.3, salt: int = 0) -> Mask:
    """Rows that the fit must not see: all that agree in `columns` stand on one side.

    Parameters
    ----------
    rows
        One measurement a row.
    columns
        What makes a group: the shape for a split by shape, ``["heads", "head_dim"]`` for one by group.
    share
        Share of the groups held out. [-]
    salt
        Another number gives another split.

    Notes
    -----
    The hash is that of pandas with a fixed key: the same groups on every machine.
    """
    return np.asarray((_hashed(rows, columns, salt) % np.uint64(10_000)) < share * 10_000)


def folds(rows: pd.DataFrame, columns: Sequence[str], count: int, salt: int = 2) -> NDArray[np.int_]:
    """Part of each row, 0 to ``count - 1``: all that agree in `columns` are in one."""
    return np.asarray(_hashed(rows, columns, salt) % np.uint64(count), dtype=int)


def sample(rows: pd.DataFrame, most: int, columns: Sequence[str], salt: int = 1) -> pd.DataFrame:
    """At most `most` rows, chosen by their hash: an even sample that is the same every time."""
    if len(rows) <= most:
        return rows
    return rows.iloc[np.sort(np.argsort(_hashed(rows, columns, salt), kind="stable")[:most])]


def _hashed(rows: pd.DataFrame, columns: Sequence[str], salt: int) -> NDArray[np.uint64]:
    keys: Any = rows[list(columns)].astype(str).agg("|".join, axis=1) if len(rows) else pd.Series(dtype=str)
    return np.asarray(pd.util.hash_array(np.asarray(keys, dtype=object), hash_key=f"{salt:016d}", categorize=True))
