"""Traces of the PyTorch profiler (Kineto): Chrome-trace JSON of all generations.

Times are microseconds. A file is an object with the list ``traceEvents``, or that list alone, with or without gzip;
keys may stand behind the list. Times near 1.7e15 with decimals do not fit a float, so those pieces are read again as
decimals.

References
----------
kineto (libkineto/src/output_json.cpp), Trace Event Format (Google, 2016)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

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
from moesim.traces.json_list import JsonList
from moesim.traces.kineto_events import EMPTY, NO_ARGS, Args, Event, PreciseEvent, tolerant_event
from moesim.traces.opening import READERS, Reader
from moesim.traces.times import EXACT, FAR, doubtful, far_away, ids, nanoseconds, whole

CATEGORIES = {
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": SET,
    "memset": SET,
    "cpu_op": OP,
    "operator": OP,
    "cuda_runtime": LAUNCH,
    "cuda_driver": LAUNCH,
    "hip_runtime": LAUNCH,
    "hip_driver": LAUNCH,
    "runtime": LAUNCH,
    "driver": LAUNCH,
    "user_annotation": ANNOTATION,
    "cuda_sync": SYNC,
}
"""Categories that are kept; older files start them with a capital."""


def _sniffed(head: bytes) -> bool:
    if re.search(rb'"traceEvents"\s*:', head):
        return True
    listed = head.lstrip().startswith(b"[") and re.search(rb'"(?:ph|cat)"\s*:\s*"', head) is not None
    known = re.search(rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:', head)
    return listed or known is not None


def read_kineto(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> EventTable:
    """Read a file.

    Raises
    ------
    SpecError
        With one line where there is no list of events.
    """
    damage, columns = Damage(), Columns()
    listed = JsonList(path, "traceEvents", decode, tolerant_event, damage, progress)
    for events in listed.pieces():
        _add(columns, events, damage)
    rows = columns.joined()
    metadata = listed.metadata
    base = metadata.get("baseTimeNanoseconds")
    if isinstance(base, int) and 0 <= base < 2**62:
        rows["start"] += base
    info = metadata.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    table = EventTable(
        source=str(path),
        format="kineto",
        **rows,
        rank=_known(info.get("rank")),
        world_size=_known(info.get("world_size")),
        gpus=_gpus(metadata.get("deviceProperties")),
        groups=_groups(info.get("pg_config")),
        repaired=damage.counts,
        first=damage.first,
    )
    lost = far_away(table.start, table.of(*GPU_WORK))
    if lost.any():
        damage.note(FAR, count=int((lost & table.of(*GPU_WORK, OP, LAUNCH)).sum()))
        table = table.chosen(~lost)
    return table


_FAST = msgspec.json.Decoder(list[Event])
_PRECISE: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[PreciseEvent])


def decode(text: bytes) -> list[Event]:
    """Events of a JSON list; times with decimals that are too long for a float come as `Decimal`."""
    try:
        events = _FAST.decode(text)
        times = [one.ts for one in events if one.ts is not None]
        if times and max(times) >= EXACT and any(type(time) is float and time >= EXACT for time in times):
            return _PRECISE.decode(text)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from None
    return events


def _add(columns: Columns, events: Sequence[Event], damage: Damage) -> None:
    """Rows of the events that are kept."""
    cats = [one.cat for one in events]
    counts = Counter(cats)
    known = {cat: CATEGORIES.get(cat.lower(), NONE) for cat in counts}
    columns.ignored.update({cat or "no category": count for cat, count in counts.items() if known[cat] < 0})
    kept = [one for one, cat in zip(events, cats, strict=True) if known[cat] >= 0]
    others = [one.ph for one in kept if one.ph != "X"]
    if others:
        columns.ignored.update(f"{ph} of a kept category" for ph in others)
        kept = [one for one in kept if one.ph == "X"]
    if not kept:
        return
    category = np.array([known[one.cat] for one in kept], dtype=np.int8)
    start, duration = nanoseconds([one.ts for one in kept]), nanoseconds([one.dur for one in kept])
    bad = doubtful(start, duration, damage)
    if bad.any():
        kept = [one for one, wrong in zip(kept, bad.tolist(), strict=True) if not wrong]
        category, start, duration = category[~bad], start[~bad], duration[~bad]
    args = [one.args or NO_ARGS for one in kept]
    names, processes, threads = columns.names, columns.processes, columns.threads
    device, stream = (ids([*map(attrgetter(name), args)], damage) for name in ("device", "stream"))
    gpu = np.isin(category, np.array(GPU_WORK, dtype=np.int8))
    for column, name in ((device, "pid"), (stream, "tid")):  # older files say it by process and thread alone
        for place in np.flatnonzero(gpu & (column == NONE)).tolist():
            column[place] = whole(getattr(kept[place], name))
    columns.add(
        start=start,
        duration=duration,
        category=category,
        name=np.array([names[one.name] for one in kept], dtype=np.int32),
        process=np.array([processes[one.pid] for one in kept], dtype=np.int32),
        thread=np.array([threads[one.tid] for one in kept], dtype=np.int32),
        device=np.clip(device, -1, 2**31 - 1),
        stream=stream,
        correlation=ids([one.correlation for one in args], damage),
        external=ids([one.external if one.external is not None else one.external_old for one in args], damage),
        detail=_details(columns, category, kept),
    )


def _details(columns: Columns, category: NDArray[np.int8], kept: Sequence[Event]) -> NDArray[np.int32]:
    """Numbers of what the events say beside their times."""
    found = np.full(len(kept), NONE, dtype=np.int32)
    number = columns.details.number
    for place in np.flatnonzero(category != LAUNCH).tolist():
        one, kind = kept[place].args or NO_ARGS, category[place]
        if one.collective is not None:
            found[place] = number(_key(one), partial(_collective, one))
        elif kind in (OP, ANNOTATION):  # NCCL's annotations tell sizes in older files
            dims = one.dims if one.dims is not EMPTY else one.dims_old
            if dims is not EMPTY:
                values = bytes(one.values) if "attention" in kept[place].name else b""
                key = (bytes(dims), bytes(one.types), bytes(one.strides), values)
                found[place] = number(key, partial(_shaped, *key))
        elif kind == SYNC:
            stream, event = whole(one.wait_stream), whole(one.wait_event)
            sync = (str(one.sync_kind or ""), stream, event)
            found[place] = number(sync, partial(Detail, sync=sync[0], sync_stream=stream, sync_event=event))
        elif kind != KERNEL and one.bytes is not None:
            size = whole(one.bytes)
            found[place] = number(size, partial(Detail, bytes=size))
    return found


def _shaped(dims: bytes, types: bytes, strides: bytes, values: bytes = b"") -> Detail:
    return Detail(_text(dims), _text(types), _text(strides), _text(values))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _key(one: Args) -> tuple[Any, ...]:
    raw = (bytes(one.dims), bytes(one.dims_old), bytes(one.types), bytes(one.strides))
    return (*raw, *(getattr(one, name) for name in COLLECTIVE), _blocks(one))


def _blocks(one: Args) -> int:
    return whole(one.grid[0]) if isinstance(one.grid, list) and one.grid else NONE


COLLECTIVE = (
    *("collective", "in_elements", "out_elements", "dtype", "group_size", "group", "group_id", "group_text", "ranks"),
    "sequence",
)
"""Arguments that tell a collective."""


def _collective(one: Args) -> Detail:
    def word(value: Any) -> str:
        return "" if value is None else str(value)

    shaped = _shaped(bytes(one.dims if one.dims is not EMPTY else one.dims_old), bytes(one.types), bytes(one.strides))
    return replace(
        shaped,
        collective=word(one.collective),
        in_elements=whole(one.in_elements),
        out_elements=whole(one.out_elements),
        dtype=word(one.dtype),
        group_size=whole(one.group_size),
        group=word(one.group if one.group is not None else one.group_id),
        group_text=word(one.group_text),
        ranks=word(one.ranks),
        sequence=whole(one.sequence),
        blocks=_blocks(one),
    )


def _known(value: Any) -> int | None:
    found = whole(value) if value is not None and not isinstance(value, bool) else NONE
    return found if found >= 0 else None


def _gpus(listed: Any) -> tuple[str, ...]:
    """Names of the GPUs of the node."""
    rows = listed if isinstance(listed, list) else []
    return tuple(str(one.get("name") or "") for one in rows if isinstance(one, dict))


def _groups(listed: Any) -> dict[str, tuple[int, ...]]:
    """Ranks of process groups, which events cut at 30."""
    found: dict[str, tuple[int, ...]] = {}
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("ranks"), list):
            found[str(one.get("pg_name", ""))] = tuple(whole(rank) for rank in one["ranks"])
    return found


READERS.add(
    "kineto",
    Reader(_sniffed, read_kineto),
    summary="PyTorch profiler: Chrome-trace JSON, with or without gzip",
    source="kineto",
)
