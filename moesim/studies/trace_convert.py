"""Traces in other forms: a Parquet table, or a repaired Chrome trace that Perfetto opens."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from moesim.base.errors import SpecError
from moesim.base.events import Event, Flow
from moesim.base.files import write_atomically
from moesim.timeline.perfetto import chrome_trace
from moesim.traces.event_table import ANNOTATION, COPY, GPU_WORK, KERNEL, LAUNCH, OP, SET, SYNC
from moesim.traces.summary import SECOND, Work

CATEGORIES = {
    KERNEL: "kernel",
    COPY: "gpu_memcpy",
    SET: "gpu_memset",
    OP: "cpu_op",
    LAUNCH: "cuda_runtime",
    ANNOTATION: "user_annotation",
    SYNC: "cuda_sync",
}
"""Categories as Kineto calls them today."""
SHAPES = {"dims": "Input Dims", "types": "Input type", "strides": "Input Strides"}


def to_parquet(work: Work, path: Path) -> None:
    """Write all events as a table: one row an event, times in nanoseconds."""
    if find_spec("pyarrow") is None:
        raise SpecError.single(str(path), "", "Parquet needs the package pyarrow", "pip install 'moesim[traces]'")
    frame = event_frame(work)
    _written(path, lambda target: frame.to_parquet(target, index=False))


def event_frame(work: Work) -> pd.DataFrame:
    """All events as a table."""
    table = work.table
    frame = pd.DataFrame(
        {
            "start_ns": table.start,
            "duration_ns": table.duration,
            "category": _coded(_order(table.category), list(CATEGORIES.values())),
            "name": _coded(table.name, list(table.names)),
            "process": table.process,
            "thread": table.thread,
            "device": table.device,
            "stream": table.stream,
            "correlation": table.correlation,
            "external_id": table.external,
        }
    )
    family = np.full(len(table), "", dtype=object)
    family[work.links.work] = work.family
    launch = np.full(len(table), -1, dtype=np.int64)
    launch[work.links.work] = work.links.launch
    op = np.full(len(table), -1, dtype=np.int64)
    op[work.links.work] = work.links.op
    details = [table.detail_of(place) for place in range(len(table))]
    return frame.assign(
        work_class=pd.Categorical(family),
        launch_row=launch,
        operator_row=op,
        input_dims=pd.Categorical([one.dims for one in details]),
        input_types=pd.Categorical([one.types for one in details]),
        collective=pd.Categorical([one.collective for one in details]),
        group_size=[one.group_size for one in details],
        bytes=[one.bytes for one in details],
    )


def _coded(codes: Any, words: list[str]) -> Any:
    return pd.Categorical.from_codes(codes, categories=pd.Index(words))


def _order(category: Any) -> Any:
    places = {code: place for place, code in enumerate(CATEGORIES)}
    return np.array([places[int(code)] for code in range(len(CATEGORIES))], dtype=np.int8)[category]


def to_perfetto(work: Work, path: Path) -> None:
    """Write a Chrome trace: GPUs and streams, threads, arrows from launches to work; times from the first event."""
    table = work.table
    origin = int(table.start.min()) if len(table) else 0
    names = {"device": "device", "stream": "stream", "correlation": "correlation", "external": "External id"}
    gpu = table.of(*GPU_WORK, SYNC)
    events = []
    for place in range(len(table)):
        detail = table.detail_of(place)
        args: dict[str, object] = {
            word: int(value) for name, word in names.items() if (value := getattr(table, name)[place]) >= 0
        }
        args |= {word: _listed(text) for name, word in SHAPES.items() if (text := getattr(detail, name))}
        args |= _told(detail)
        on_gpu = bool(gpu[place])
        lane = f"stream {table.stream[place]}" if on_gpu else f"thread {table.thread[place]}"
        rank = int(table.device[place]) if on_gpu else HOSTS + int(table.process[place])
        start, duration = (int(table.start[place]) - origin) / SECOND, int(table.duration[place]) / SECOND
        name = table.name_of(place)
        events.append(Event(rank, lane, name, CATEGORIES[int(table.category[place])], start, duration, args))
    arrows = [
        Flow(int(launch), int(one))
        for one, launch in zip(work.links.work.tolist(), work.links.launch.tolist(), strict=True)
        if launch >= 0
    ]
    ranks = {
        event.rank: f"process {event.rank - HOSTS}" if event.rank >= HOSTS else f"GPU {event.rank}" for event in events
    }
    told = {"rank": table.rank, "world_size": table.world_size}
    document = chrome_trace(events, arrows, ranks) | {
        "baseTimeNanoseconds": origin,
        "distributedInfo": {name: value for name, value in told.items() if value is not None},
        "deviceProperties": [{"id": number, "name": name} for number, name in enumerate(table.gpus)],
    }
    write_atomically(path, json.dumps(document, allow_nan=False, separators=(",", ":")))


HOSTS = 1000
"""First number of a process of the host, behind those of the GPUs."""


def _listed(text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError:
        found = text
    return found


def _told(detail: Any) -> dict[str, object]:
    """Arguments of collectives and copies as Kineto calls them."""
    told: dict[str, object] = {}
    if detail.bytes >= 0:
        told["bytes"] = detail.bytes
    if detail.collective:
        told |= {"Collective name": detail.collective, "dtype": detail.dtype, "Process Group Name": detail.group}
        told |= {
            "In msg nelems": detail.in_elements,
            "Out msg nelems": detail.out_elements,
            "Group size": detail.group_size,
        }
        told |= {"Seq": detail.sequence} if detail.sequence >= 0 else {}
    return told


def _written(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file beside its place and move it there when it is complete."""
    handle, temporary = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    try:
        write(Path(temporary))
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
