"""Events of a measured timeline as columns: integer nanoseconds, names and details by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

KERNEL, COPY, SET, OP, LAUNCH, ANNOTATION, SYNC = range(7)
"""Categories: kernels, copies and sets (on the GPU); operators, runtime calls, annotations (on the host); syncs."""
GPU_WORK = (KERNEL, COPY, SET)
NONE = -1
"""No correlation, device, stream or detail."""


@dataclass(frozen=True)
class Detail:
    """What an event says beside its times; events that say the same share one.

    Attributes
    ----------
    dims, types, strides, values
        Shapes, types, strides and (of attention only) values of the arguments of an operator, as JSON.
    collective
        Name of a collective as PyTorch spells it; empty where there is none.
    in_elements, out_elements, dtype, group_size
        Elements that go in and come out on a rank, their type, and the ranks of the group.
    group, group_text, ranks, sequence
        Name, description and ranks of the process group as text, and the number of the collective in it.
    bytes
        Of a copy or set. [B]
    blocks
        Blocks of a collective's kernel: its channels. [-]
    sync, sync_stream, sync_event
        Kind of a sync, the stream that is waited for, and the correlation of the recorded event.
    """

    dims: str = ""
    types: str = ""
    strides: str = ""
    values: str = ""
    collective: str = ""
    in_elements: int = NONE
    out_elements: int = NONE
    dtype: str = ""
    group_size: int = NONE
    group: str = ""
    group_text: str = ""
    ranks: str = ""
    sequence: int = NONE
    bytes: int = NONE
    blocks: int = NONE
    sync: str = ""
    sync_stream: int = NONE
    sync_event: int = NONE


@dataclass(frozen=True, eq=False)
class EventTable:
    """Events of one file.

    Parameters
    ----------
    source, format
        File and the name of its reader.
    names, details
        What the columns `name` and `detail` count.
    start, duration
        Nanoseconds since the Unix epoch where the file tells, and how long. [ns]
    category, name, process, thread, device, stream, correlation, external, detail
        Columns; -1 where there is none. `correlation` is unique in a process, `external` is the id of an operator.
    rank, world_size
        None where the file does not tell.
    gpus
        Names of the GPUs in the node; not all of them need be in the file.
    linkable
        Whether the file has launches, so that a kernel without one began before it.
    repaired, first
        Defects that were repaired or left out, and where each was met first.
    ignored
        Events that say nothing about times of work, by their category in the file.
    groups
        Ranks of the process groups by name.
    """

    source: str
    format: str
    names: tuple[str, ...]
    details: tuple[Detail, ...]
    start: Ints
    duration: Ints
    category: NDArray[np.int8]
    name: NDArray[np.int32]
    process: NDArray[np.int32]
    thread: NDArray[np.int32]
    device: NDArray[np.int32]
    stream: Ints
    correlation: Ints
    external: Ints
    detail: NDArray[np.int32]
    rank: int | None = None
    world_size: int | None = None
    gpus: tuple[str, ...] = ()
    linkable: bool = True
    repaired: Mapping[str, int] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Ints:
        """Ends. [ns]"""
        return self.start + self.duration

    def of(self, *categories: int) -> Mask:
        """Which events are of some categories."""
        return np.asarray(np.isin(self.category, np.array(categories, dtype=np.int8)))

    def chosen(self, mask: NDArray[Any]) -> EventTable:
        """Only some of the events."""
        return replace(self, **{name: getattr(self, name)[mask] for name in COLUMNS})

    def name_of(self, event: int) -> str:
        """Name of an event."""
        return self.names[int(self.name[event])]

    def detail_of(self, event: int) -> Detail:
        """What an event says beside its times."""
        place = int(self.detail[event])
        return self.details[place] if place >= 0 else NOTHING

    @property
    def devices(self) -> list[int]:
        """GPUs that did some work."""
        return [int(device) for device in np.unique(self.device[self.of(*GPU_WORK)])]


NOTHING = Detail()
COLUMNS = tuple(one.name for one in fields(EventTable) if one.type in ("Ints", "NDArray[np.int8]", "NDArray[np.int32]"))
KINDS = {"category": np.int8, **dict.fromkeys(("name", "process", "thread", "device", "detail"), np.int32)}


class Codes(dict[Any, int]):
    """Numbers of things in the order in which they are first met."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class Details:
    """Numbers of details by a short key, so that few of them are built."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.listed: list[Detail] = []

    def number(self, key: Any, build: Callable[[], Detail]) -> int:
        """Number of the detail that a key stands for."""
        found = self._numbers.get(key)
        if found is None:
            self._numbers[key] = found = len(self.listed)
            self.listed.append(build())
        return found


class Columns:
    """Columns of events as they are read, a piece at a time."""

    def __init__(self) -> None:
        self.names, self.details = Codes(), Details()
        self.processes, self.threads = Codes(), Codes()
        self.ignored: Counter[str] = Counter()
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in COLUMNS}

    def add(self, **columns: NDArray[Any]) -> None:
        """Add rows."""
        for name in COLUMNS:
            self._parts[name].append(columns[name].astype(KINDS.get(name, np.int64), copy=False))

    def joined(self) -> dict[str, Any]:
        """All rows, with the names and details that they count."""
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            parts = self._parts.pop(name)
            kind = KINDS.get(name, np.int64)
            columns[name] = np.concatenate(parts) if parts else np.empty(0, dtype=kind)
        return columns | {
            "names": tuple(self.names),
            "details": tuple(self.details.listed),
            "ignored": dict(self.ignored),
        }
