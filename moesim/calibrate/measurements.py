"""Measured rows on their way into a fit: what was read, what was dropped and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from moesim.base.errors import SpecError, did_you_mean
from moesim.spec.spellings import gpu_of


@dataclass
class Rows:
    """Rows of one family with the counts of those left out."""

    frame: pd.DataFrame
    source: str
    version: str
    read: int
    dropped: dict[str, int] = field(default_factory=dict)

    def keep(self, good: Any, reason: str) -> Rows:
        """Drop what is not good and count it."""
        good = np.asarray(good, dtype=bool)
        if not good.all():
            self.dropped[reason] = self.dropped.get(reason, 0) + int((~good).sum())
            self.frame = self.frame[good].reset_index(drop=True)
        return self


def read_csv(path: Path, needed: Sequence[str]) -> pd.DataFrame:
    """Table in a CSV file, ``line`` being the row's in the file; a `SpecError` with one line where it cannot be one."""
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=True, na_values=["N/A", "n/a", "-", ""])
    except FileNotFoundError:
        raise SpecError.single(str(path), "", "there is no such file") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise SpecError.single(str(path), "", f"is no CSV: {error}".splitlines()[0]) from None
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise SpecError(
            SpecError.single(str(path), name, "is missing", did_you_mean(name, frame.columns)).issues[0]
            for name in missing
        )
    if frame.empty:
        raise SpecError.single(str(path), "", "has no rows")
    return frame.assign(line=np.arange(2, len(frame) + 2))


def numbers(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the table with columns as numbers; what is none, or not finite, becomes NaN."""
    changed = {
        name: pd.to_numeric(frame[name], errors="coerce").replace([np.inf, -np.inf], np.nan)
        for name in names
        if name in frame.columns
    }
    return frame.assign(**changed)


def gpu_names(spellings: pd.Series[str]) -> pd.Series[str]:
    """Names of the GPUs that a table means; empty where nobody knows."""
    known: Mapping[str, str] = {text: gpu_of(str(text)) or "" for text in spellings.dropna().unique()}
    return spellings.map(known).fillna("")
