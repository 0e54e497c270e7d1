"""Traces of any kind: the reader is chosen by what a file holds, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.registry import Registry
from moesim.traces.event_table import EventTable
from moesim.traces.stream import existing, head_of


@dataclass(frozen=True)
class Reader:
    """Reader of one format.

    Attributes
    ----------
    sniff
        Whether a file that begins so (without its gzip) is of this format.
    read
        Reads it; raises a `SpecError` with one line where it cannot be used. The second argument is called with the
        bytes read so far.
    """

    sniff: Callable[[bytes], bool]
    read: Callable[[Path, Callable[[int], None]], Any]


READERS: Registry[Reader] = Registry(
    "trace format", package="moesim.traces.readers", entry_points="moesim.trace_readers"
)


def is_known(path: Path) -> bool:
    """Whether some reader knows a file."""
    return _sniffed(head_of(existing(path))) is not None


def _sniffed(head: bytes) -> str | None:
    return next((entry.name for entry in READERS.entries() if entry.item.sniff(head)), None)


def format_of(path: Path) -> str:
    """Name of the format of a file."""
    head = head_of(existing(path))
    name = _sniffed(head)
    if name is not None:
        return name
    known = ", ".join(entry.name for entry in READERS.entries())
    what = "is empty" if not head.strip() else "is no trace that is known"
    raise SpecError.single(str(path), "", what, f"formats: {known}")


def read_any(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Any:
    """Read a file of any known format."""
    return READERS.get(format_of(path)).read(path, progress)


def read_timeline(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> EventTable:
    """Read a file that holds a timeline; a `SpecError` with one line for one that holds something else."""
    found = read_any(path, progress)
    if not isinstance(found, EventTable):
        what = f"is a file of {format_of(path)}, which holds no timeline"
        raise SpecError.single(str(path), "", what, "give a trace of the PyTorch profiler or of Nsight Systems")
    return found
