"""PyTorch's flight recorder: a pickle, or JSON, of the last collectives of each rank.

Pickles may run code when they are loaded; here one that names any class or function is refused. Without timing in the
job the entries tell sizes, groups and the order of collectives, but no durations.

References
----------
PyTorch, torch/csrc/distributed/c10d/FlightRecorder
"""

from __future__ import annotations

import io
import json
import math
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from moesim.base.errors import SpecError
from moesim.traces.collectives import dtype_bytes, operation_of
from moesim.traces.damage import Damage
from moesim.traces.opening import READERS, Reader
from moesim.traces.records import Records
from moesim.traces.stream import whole

NO_ENTRY = "entry left out: no mapping"
LARGEST = 1 << 30
"""Bytes of the largest dump that is loaded. [B]"""


class _Plain(pickle.Unpickler):
    """Loads builtin containers, numbers and text only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and only plain data is loaded")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to data outside of it")


def _sniffed(head: bytes) -> bool:
    pickled = head[:1] == b"\x80" and len(head) > 1 and 2 <= head[1] <= 5
    return pickled or (b'"pg_config"' in head and b'"entries"' in head)


def read_flight_recorder(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Read a dump: a record for each entry."""
    damage = Damage()
    raw = whole(path, damage.note)
    if len(raw) > LARGEST:
        raise SpecError.single(str(path), "", f"is larger than {LARGEST:,} bytes", "")
    found = _loaded(path, raw)
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise SpecError.single(str(path), "entries", "is missing", "give a dump of PyTorch's flight recorder")
    groups = found.get("pg_config")
    sizes = _group_sizes(groups if isinstance(groups, dict) else {})
    records = []
    for one in entries:
        if isinstance(one, dict):
            records.append(_record(one, sizes))
        else:
            damage.note(NO_ENTRY)
    states = Counter(f"state {one['state']}" for one in records)
    counts = {"entries": len(records), "groups": len(sizes), **states}
    return Records(str(path), "flight-recorder", tuple(records), counts, damage.counts, damage.first)


def _loaded(path: Path, raw: bytes) -> Any:
    try:
        if raw.lstrip()[:1] == b"{":
            return json.loads(raw)
        return _Plain(io.BytesIO(raw)).load()
    except Exception as error:  # a damaged pickle raises whatever its opcodes meet
        what = " ".join(str(error).split()) or type(error).__name__
        raise SpecError.single(str(path), "", f"cannot be loaded: {what}", "") from None


def _group_sizes(groups: dict[Any, Any]) -> dict[str, int]:
    sizes = {}
    for key, one in groups.items():
        ranks = one.get("ranks") if isinstance(one, dict) else None
        listed = ranks if isinstance(ranks, list) else str(ranks or "").strip("[]").split(",")
        sizes[str(one.get("name", key)) if isinstance(one, dict) else str(key)] = len(
            [x for x in listed if str(x).strip()]
        )
    return sizes


def _record(one: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    group = one.get("process_group")
    name, text = (str(group[0]), str(group[1])) if isinstance(group, list | tuple) and len(group) > 1 else ("", "")
    profiled = str(one.get("profiling_name", ""))
    duration = one.get("duration_ms")
    return {
        "collective": operation_of(profiled) or profiled,
        "group": name,
        "group_text": text,
        "ranks": sizes.get(name),
        "sequence": one.get("collective_seq_id"),
        "point_to_point": bool(one.get("is_p2p")),
        "input_bytes": _bytes(one.get("input_sizes"), one.get("input_dtypes")),
        "output_bytes": _bytes(one.get("output_sizes"), one.get("output_dtypes")),
        "state": str(one.get("state", "")),
        "time_s": duration * 1e-3 if isinstance(duration, int | float) else None,
    }


def _bytes(sizes: Any, types: Any) -> int | None:
    """Bytes of all tensors; None where a type or size is not known."""
    if not isinstance(sizes, Sequence) or not isinstance(types, Sequence) or len(sizes) != len(types):
        return None
    total = 0
    for size, kind in zip(sizes, types, strict=True):
        width = dtype_bytes(str(kind))
        if width is None or not isinstance(size, Sequence) or not all(isinstance(part, int) for part in size):
            return None
        total += width * math.prod(size)
    return total


READERS.add(
    "flight-recorder",
    Reader(_sniffed, read_flight_recorder),
    summary="PyTorch flight recorder: pickle of plain data, or JSON",
    source="pytorch-flight-recorder",
)
