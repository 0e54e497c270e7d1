"""Timelines as Chrome trace JSON, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moesim.base.events import Event, Flow
from moesim.base.files import write_atomically

MICROSECONDS = 1e6


def chrome_trace(
    events: Sequence[Event], flows: Iterable[Flow] = (), rank_names: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Trace with a process for each rank, a thread for each lane, and arrows for the flows.

    Parameters
    ----------
    events, flows
        What happens, and which events wait for which.
    rank_names
        What to call a rank; ``rank 3`` where left out.

    References
    ----------
    Trace Event Format, Google, 2016: complete events (X), metadata (M), flow events (s, f)
    """
    lanes = {lane: place for place, lane in enumerate(dict.fromkeys(event.lane for event in events))}
    names = rank_names or {}
    records: list[dict[str, Any]] = []
    for rank in sorted({event.rank for event in events}):
        process = {"name": names.get(rank, f"rank {rank}")}
        records.append({"ph": "M", "name": "process_name", "pid": rank, "args": process})
        records.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
    for rank, lane in sorted(
        {(event.rank, event.lane) for event in events}, key=lambda pair: (pair[0], lanes[pair[1]])
    ):
        records.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": lanes[lane], "args": {"name": lane}})
    records += [
        {
            "ph": "X",
            "name": event.name,
            "cat": event.category,
            "pid": event.rank,
            "tid": lanes[event.lane],
            "ts": event.start_s * MICROSECONDS,
            "dur": event.duration_s * MICROSECONDS,
            "args": event.args,
        }
        for event in events
    ]
    for number, flow in enumerate(flows):
        source, target = events[flow.source], events[flow.target]
        # An arrow belongs to the slice around its time, so it leaves just before the end of its source.
        leaves = source.start_s + 0.999 * source.duration_s
        ends = (("s", source, leaves), ("f", target, target.start_s))
        for phase, event, time in ends:
            record = {"ph": phase, "name": "waits", "cat": "flow", "id": number, "ts": time * MICROSECONDS}
            records.append(
                record | {"pid": event.rank, "tid": lanes[event.lane]} | ({"bp": "e"} if phase == "f" else {})
            )
    return {"traceEvents": records, "displayTimeUnit": "ms"}


def write(
    path: str | os.PathLike[str],
    events: Sequence[Event],
    flows: Iterable[Flow] = (),
    rank_names: Mapping[int, str] | None = None,
) -> None:
    """Write a Chrome trace file, whole or not at all."""
    write_atomically(path, json.dumps(chrome_trace(events, flows, rank_names), allow_nan=False, separators=(",", ":")))
