"""Measured rows on their way into a fit: what was read, what was dropped and why."""

from __future__ import annotations

import csv
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


NOTHING = ("", "N/A", "n/a", "NA", "NaN", "nan", "-", "None", "null")
"""What tables write where they have no value."""
RAGGED = "line has more or fewer fields than the header"


def read_csv(path: Path, needed: Sequence[str]) -> pd.DataFrame:
    """Table in a CSV file, ``line`` being the row's in the file; a `SpecError` with one line where it cannot be one.

    Lines with another number of fields are left out; `started` counts them.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, line) for line in reader if line and not line[0].lstrip().startswith("#")]
    except FileNotFoundError:
        raise SpecError.single(str(path), "", "there is no such file") from None
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise SpecError.single(str(path), "", f"is no CSV: {error}".splitlines()[0]) from None
    if not lines:
        raise SpecError.single(str(path), "", "is no CSV: it is empty")
    header = [name.strip() for name in lines[0][1]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise SpecError.single(str(path), "", f"has the column '{twice[0]}' twice", "name each column once")
    missing = [name for name in needed if name not in header]
    if missing:
        raise SpecError(
            SpecError.single(str(path), name, "is missing", did_you_mean(name, header)).issues[0] for name in missing
        )
    good = [(number, line) for number, line in lines[1:] if len(line) == len(header)]
    ragged = len(lines) - 1 - len(good)
    if not good:
        told = f"; {ragged:,}: {RAGGED}" if ragged else ""
        raise SpecError.single(str(path), "", f"has no rows{told}")
    frame = pd.DataFrame([line for _, line in good], columns=header, dtype=object)
    frame = frame.map(lambda text: np.nan if text.strip() in NOTHING else text).astype(object)
    frame = frame.assign(line=[number for number, _ in good])
    frame.attrs["ragged"] = ragged
    return frame


def started(frame: pd.DataFrame, path: Path) -> Rows:
    """Rows of a table that was just read, with its ragged lines counted."""
    ragged = int(frame.attrs.get("ragged", 0))
    rows = Rows(frame, path.name, "", len(frame) + ragged)
    if ragged:
        rows.dropped[RAGGED] = ragged
    return rows


def one_of(path: Path, frame: pd.DataFrame, columns: Sequence[str], needed: bool) -> None:
    """Refuse a table that has none of some columns, where one of them is `needed`."""
    if needed and not set(columns) & set(frame.columns):
        raise SpecError.single(str(path), columns[0], "is missing", f"or give {', '.join(columns[1:])}")


def with_times(rows: Rows, sizes: Sequence[str], tells_time: bool) -> Rows:
    """Drop rows without whole sizes, and where the table tells times those without one, by reason."""
    frame = rows.frame
    rows.keep(
        frame[list(sizes)].notna().all(axis=1) & ((not tells_time) | frame["time_s"].notna()), "no size or no time"
    )
    positive = (rows.frame[list(sizes)] > 0).all(axis=1) & ~(rows.frame["time_s"] <= 0)
    rows.keep(positive, "size or time is not positive")
    return rows.keep((rows.frame[list(sizes)] % 1 == 0).all(axis=1), "size is no whole number")


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
