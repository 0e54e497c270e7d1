"""Rows of an answer as a file of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.files import write_atomically


def write_frame(path: Path, rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
    """Write rows, or columns by name, as CSV or Parquet, by the ending of the file, whole or not at all."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    if path.suffix == ".csv":
        write_atomically(path, frame.to_csv(index=False))
        return
    try:
        write_atomically(path, frame.to_parquet(index=False))
    except ImportError:
        raise SpecError.single("--out", str(path), "needs pyarrow", "pip install 'moesim[traces]'") from None
