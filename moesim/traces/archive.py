"""Traces of many ranks: files, folders of files, and tar archives of them."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.traces.stream import existing

MOST_BYTES = 64 << 30
"""Bytes that an archive may unpack to. [B]"""


@contextmanager
def trace_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Files that paths name: those of a folder and of an archive in the order of the numbers in their names."""
    with ExitStack() as stack:
        found: list[Path] = []
        for path in paths:
            if path.is_dir():
                found += _inside(path)
            elif tarfile.is_tarfile(existing(path)):
                found += _inside(_unpacked(path, Path(stack.enter_context(tempfile.TemporaryDirectory()))))
            else:
                found.append(path)
        yield found


def _inside(folder: Path) -> list[Path]:
    files = sorted((one for one in folder.rglob("*") if one.is_file()), key=natural)
    if not files:
        raise SpecError.single(str(folder), "", "holds no file", "name a trace")
    return files


def natural(path: Path) -> list[Any]:
    """Sort key by which rank 2 comes before rank 10.

    Examples
    --------
    >>> [str(path) for path in sorted([Path("rank10"), Path("rank2")], key=natural)]
    ['rank2', 'rank10']
    """
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]


def _unpacked(path: Path, folder: Path) -> Path:
    """Regular files of an archive, in a folder."""
    try:
        with tarfile.open(path) as archive:
            members = [one for one in archive.getmembers() if one.isfile()]
            if sum(one.size for one in members) > MOST_BYTES:
                raise SpecError.single(
                    str(path), "", f"unpacks to more than {MOST_BYTES:,} bytes", "unpack it yourself"
                )
            archive.extractall(folder, members=members, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SpecError.single(str(path), "", f"is a damaged archive: {error}", "unpack what can be") from None
    return folder
