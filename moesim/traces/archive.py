"""Traces of many ranks: files, folders of files, and tar archives of them."""

from __future__ import annotations

import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.traces.opening import is_known
from moesim.traces.stream import existing, head_of

MOST_BYTES = 64 << 30
"""Bytes that an archive may unpack to. [B]"""
USTAR = b"ustar"
"""Mark in the first header of a tar archive."""


@dataclass(frozen=True)
class Found:
    """Traces that paths name; ``passed_over``: files in folders and archives that are none."""

    files: tuple[Path, ...]
    passed_over: tuple[str, ...]


@contextmanager
def trace_files(paths: Sequence[Path]) -> Iterator[Found]:
    """Traces that paths name: those of a folder and of an archive in the order of the numbers in their names."""
    with ExitStack() as stack:
        found: list[Path] = []
        others: list[str] = []
        for path in paths:
            for one in _inside(path) if path.is_dir() else [existing(path)]:
                if head_of(one, 512)[257:262] == USTAR:
                    inside = _inside(_unpacked(one, Path(stack.enter_context(tempfile.TemporaryDirectory()))))
                elif path.is_dir():
                    inside = [one]
                else:
                    found.append(one)
                    continue
                known = [file for file in inside if is_known(file)]
                found += known
                others += [file.name for file in inside if file not in known]
        if not found:
            told = f": {', '.join(others[:5])}" if others else ""
            raise SpecError.single(", ".join(map(str, paths)), "", f"holds no trace that is known{told}", "name one")
        yield Found(tuple(found), tuple(others))


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
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        what = f"is a damaged archive: {error}".splitlines()[0]
        raise SpecError.single(str(path), "", what, "unpack what can be") from None
    return folder
