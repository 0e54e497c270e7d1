"""Exports of Nsight Systems to SQLite, of one or several processes and GPUs.

Times are integer nanoseconds since the session began. Tables exist only where there was data, and columns change
between schemas, so both are looked up. Correlations are unique in a process only. The tables of the process environment
are not read.

References
----------
Nsight Systems user guide, SQLite schema reference; schemas 3.17 to 3.25
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from moesim.base.errors import SpecError
from moesim.traces.damage import Damage
from moesim.traces.event_table import (
    ANNOTATION,
    COPY,
    GPU_WORK,
    KERNEL,
    LAUNCH,
    NONE,
    OP,
    SET,
    SYNC,
    Columns,
    Detail,
    EventTable,
)
from moesim.traces.opening import READERS, Reader
from moesim.traces.stream import GZIP, blocks
from moesim.traces.times import FAR, MISSING, doubtful, far_away, ids

MAGIC = b"SQLite format 3\x00"
PROCESS = ~0xFFFFFF
"""Bits of a global thread id that tell its process."""
PUSH_POP, START_END = 59, 60
"""Kinds of NVTX ranges."""
_OP = re.compile(r"^(?P<name>[^,]+), (?:seq = -?\d+, )?op_id = \d+(?:, sizes = (?P<sizes>\[.*\]))?")
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": SET,
    "CUPTI_ACTIVITY_KIND_RUNTIME": LAUNCH,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": SYNC,
}
"""Tables of events, without the suffix of their version."""
NAMES = {
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "CUDA graph",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "Memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "Memset",
}
COPIES = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Kinds in ``ENUM_CUPTI_SYNC_TYPE``."""


def read_nsys(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> EventTable:
    """Read an export.

    Raises
    ------
    SpecError
        With one line where the database is none, is damaged, or is of something else.
    """
    damage, columns = Damage(), Columns()
    try:
        with _opened(path, damage, progress) as database:
            tables = _tables(database)
            if not any(name.startswith(("CUPTI_", "NVTX_", "META_DATA", "TARGET_INFO")) for name in tables):
                raise SpecError.single(
                    str(path), "", "is a database, but none of Nsight Systems", "export with nsys export"
                )
            export = _Export(database, tables, damage)
            for name, kind in TABLES.items():
                _add(columns, export, name, kind)
            _ranges(columns, export)
            gpus = tuple(str(one or "") for one in (export.select("TARGET_INFO_GPU", ("name",)) or {}).get("name", ()))
            starts = (export.select("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) or {}).get("utcEpochNs")
            base = starts[0] if starts else None
    except (sqlite3.Error, OverflowError) as error:
        raise SpecError.single(str(path), "", f"is a damaged database: {error}", "export it again") from None
    rows = columns.joined()
    if isinstance(base, int) and 0 < base < 2**62:
        rows["start"] += base
    table = EventTable(source=str(path), format="nsys", **rows, gpus=gpus, repaired=damage.counts, first=damage.first)
    lost = far_away(table.start, table.of(*GPU_WORK))
    damage.note(FAR, count=int(lost.sum()))
    return table.chosen(~lost) if lost.any() else table


@contextmanager
def _opened(path: Path, damage: Damage, progress: Callable[[int], None]) -> Iterator[sqlite3.Connection]:
    """Database, read-only; one in gzip is unpacked beside the other temporary files first."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    if not packed:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = _text
            yield database
        return
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
        for block in blocks(path, damage.note, progress):
            copy.write(block)
        copy.flush()
        with closing(sqlite3.connect(f"{Path(copy.name).as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = _text
            yield database


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _tables(database: sqlite3.Connection) -> dict[str, str]:
    """Tables by name without the suffix of a version (the newest counts)."""
    found = [str(name) for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
    return {re.sub(r"_V\d+$", "", name): name for name in sorted(found)}


class _Export:
    """Tables of a database, looked up by name without their version, and columns that may be missing."""

    def __init__(self, database: sqlite3.Connection, tables: dict[str, str], damage: Damage) -> None:
        self.database, self.tables, self.damage = database, tables, damage
        text = self.select("StringIds", ("id", "value")) or {"id": [], "value": []}
        self.strings: dict[Any, Any] = dict(zip(text["id"], text["value"], strict=True))

    def select(self, name: str, wanted: Sequence[str]) -> dict[str, list[Any]] | None:
        """Columns of a table, None in the place of one that it lacks; None without the table."""
        if name not in self.tables:
            return None
        table = self.tables[name].replace('"', "")
        there = {str(row[1]) for row in self.database.execute(f'pragma table_info("{table}")')}
        text = ", ".join(f'"{column}"' if column in there else "null" for column in wanted)
        rows = self.database.execute(f'select {text} from "{table}"').fetchall()
        return {column: [row[place] for row in rows] for place, column in enumerate(wanted)}

    def recorded(self) -> dict[tuple[Any, Any], tuple[int, int]]:
        """Stream and correlation of recorded events, by process and the id that syncs name them with."""
        wanted = ("globalPid", "eventSyncId", "streamId", "correlationId")
        read = self.select("CUPTI_ACTIVITY_KIND_CUDA_EVENT", wanted)
        if read is None:
            return {}
        pairs = zip(
            ids(read["streamId"], self.damage).tolist(), ids(read["correlationId"], self.damage).tolist(), strict=True
        )
        return dict(zip(zip(read["globalPid"], read["eventSyncId"], strict=True), pairs, strict=True))


WANTED = (
    *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "globalTid"),
    *("demangledName", "shortName", "nameId", "bytes", "copyKind", "syncType", "eventSyncId"),
)


def _add(columns: Columns, export: _Export, name: str, kind: int) -> None:
    """Rows of a table of events."""
    read, damage = export.select(name, WANTED), export.damage
    if not read or not read["start"]:
        return
    processes = [
        pid if isinstance(pid, int) else (tid & PROCESS if isinstance(tid, int) else None)
        for pid, tid in zip(read["globalPid"], read["globalTid"], strict=True)
    ]
    keys = [first or second or third for first, second, third in zip(*(read[one] for one in NAME_KEYS), strict=True)]
    if kind == COPY:
        names = [COPIES.get(one, NAMES[name]) for one in read["copyKind"]]
    elif kind == SYNC:
        names = [SYNCS.get(one, "sync") for one in read["syncType"]]
    else:
        names = [NAMES.get(name) or str(export.strings.get(key, "unnamed")) for key in keys]
    details = [NONE] * len(names)
    if kind in (COPY, SET):
        sizes = ids(read["bytes"], damage).tolist()
        details = [columns.details.number(one, partial(Detail, bytes=one)) for one in sizes]
    elif kind == SYNC:
        recorded = export.recorded()
        events = [recorded.get(key, (NONE, NONE)) for key in zip(processes, read["eventSyncId"], strict=True)]
        details = [
            columns.details.number((one, *event), partial(Detail, sync=one, sync_stream=event[0], sync_event=event[1]))
            for one, event in zip(names, events, strict=True)
        ]
    _append(
        columns,
        damage,
        times=(read["start"], read["end"]),
        category=[kind] * len(names),
        names=names,
        processes=processes,
        threads=read["globalTid"],
        device=read["deviceId"],
        stream=read["streamId"],
        correlation=read["correlationId"],
        details=details,
    )


NAME_KEYS = ("demangledName", "shortName", "nameId")


def _append(
    columns: Columns, damage: Damage, times: tuple[list[Any], list[Any]], names: list[str], **given: list[Any]
) -> None:
    """Rows with times that can be."""
    start, end = (
        np.array([one if isinstance(one, int) and abs(one) < 2**62 else MISSING for one in part], dtype=np.int64)
        for part in times
    )
    duration = np.where((start == MISSING) | (end == MISSING), MISSING, end - start)
    good = ~doubtful(start, duration, damage)
    filled = {
        "start": start,
        "duration": duration,
        "category": np.array(given["category"]),
        "name": np.array([columns.names[one] for one in names]),
        "process": np.array([columns.processes[one] for one in given["processes"]]),
        "thread": np.array([columns.threads[one] for one in given["threads"]]),
        "device": np.clip(ids(given["device"], damage), -1, 2**31 - 1),
        "stream": ids(given["stream"], damage),
        "correlation": ids(given["correlation"], damage),
        "external": np.full(len(names), NONE),
        "detail": np.array(given["details"]),
    }
    columns.add(**{name: column[good] for name, column in filled.items()})


def _ranges(columns: Columns, export: _Export) -> None:
    """NVTX ranges: operators of PyTorch (with their sizes where they were recorded), and annotations."""
    wanted = ("start", "end", "eventType", "text", "textId", "domainId", "globalTid")
    read, damage = export.select("NVTX_EVENTS", wanted), export.damage
    if not read:
        return
    rows = []
    for start, end, kind, text, key, domain, thread in zip(*(read[one] for one in wanted), strict=True):
        name = text if text is not None else export.strings.get(key)
        if kind not in (PUSH_POP, START_END) or end is None or name is None:
            continue
        if domain:
            columns.ignored["nvtx of libraries"] += 1
            continue
        found = _OP.match(str(name))
        detail = NONE
        if found and found["sizes"]:
            detail = columns.details.number(found["sizes"], partial(Detail, dims=found["sizes"]))
        process = thread & PROCESS if isinstance(thread, int) else None
        rows.append(
            (start, end, OP if found else ANNOTATION, found["name"] if found else str(name), process, thread, detail)
        )
    if not rows:
        return
    starts, ends, category, names, processes, threads, details = (list(one) for one in zip(*rows, strict=True))
    nothing = [None] * len(rows)
    _append(
        columns,
        damage,
        times=(starts, ends),
        category=category,
        names=names,
        processes=processes,
        threads=threads,
        device=nothing,
        stream=nothing,
        correlation=nothing,
        details=details,
    )


READERS.add(
    "nsys",
    Reader(lambda head: head.startswith(MAGIC), read_nsys),
    summary="Nsight Systems: SQLite export",
    source="nsys-sqlite",
)
