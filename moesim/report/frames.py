"""Rows of an answer as a file of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_frame(path: Path, rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
    """Write rows, or columns by name, as CSV or Parquet, by the ending of the file."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
