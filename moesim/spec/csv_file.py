"""Tables of text: rows by the names of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path

from moesim.base.errors import SpecError
from moesim.spec.yaml_file import read_text


def csv_rows(path: Path, required: Collection[str], fix: str) -> Iterator[dict[str, str]]:
    """Rows of a CSV file, what stands around a value stripped.

    Parameters
    ----------
    path
        The file, in UTF-8.
    required
        Columns that it must have.
    fix
        What to do where it lacks one.

    Raises
    ------
    SpecError
        Where it cannot be read, is no CSV, or lacks a column.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        missing = sorted(set(required) - set(reader.fieldnames or ()))
        if missing:
            raise SpecError.single(f"{path}:1", "", f"columns {', '.join(missing)} are missing", fix)
        for row in reader:
            yield {name: (value or "").strip() for name, value in row.items() if name}
    except csv.Error as error:
        raise SpecError.single(f"{path}:{reader.line_num}", "", f"is no CSV: {error}", fix) from None
