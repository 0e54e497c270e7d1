"""NCCL inspector: JSON objects one after the other, one a line or printed over several.

Sizes of all-gathers and reduce-scatters are those of one rank there; they become those of nccl-tests, the whole buffer.

References
----------
nccl (ext-profiler/inspector), output formats v4.0 to v4.2
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.traces.collectives import operation_of
from moesim.traces.damage import Damage
from moesim.traces.opening import READERS, Reader
from moesim.traces.records import Records
from moesim.traces.stream import whole

PER_RANK = ("all-gather", "reduce-scatter")
UNREADABLE, NO_TIME = "object left out: no JSON", "record without size or time"
_NEXT = re.compile(r"\n\s*(?=\{)")


def _sniffed(head: bytes) -> bool:
    return re.search(rb'"(?:coll_perf|p2p_perf)"\s*:', head) is not None


def read_inspector(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Read a file: a record for each operation."""
    damage = Damage()
    text = whole(path, damage.note).decode("utf-8", errors="replace")
    records = []
    for found in _objects(text, damage):
        one = _record(found)
        if one is None:
            damage.note(NO_TIME)
        else:
            records.append(one)
    if not records:
        raise SpecError.single(str(path), "", "holds no record of the NCCL inspector", "")
    counts = Counter(str(one["collective"]) for one in records)
    return Records(str(path), "nccl-inspector", tuple(records), counts, damage.counts, damage.first)


def _objects(text: str, damage: Damage) -> Iterator[dict[str, Any]]:
    """Objects one after the other; what is no JSON is left out up to the next line that begins one."""
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        try:
            found, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            damage.note(UNREADABLE, place)
            following = _NEXT.search(text, place + 1)
            if following is None:
                return
            place = following.end()
            continue
        if isinstance(found, dict):
            yield found


def _record(found: dict[str, Any]) -> dict[str, Any] | None:
    header, metadata = found.get("header"), found.get("metadata", {})
    kind = "coll" if isinstance(found.get("coll_perf"), dict) else "p2p"
    told = found.get(f"{kind}_perf")
    if not isinstance(told, dict) or not isinstance(header, dict) or not isinstance(metadata, dict):
        return None
    given = (told.get(f"{kind}_msg_size_bytes"), told.get(f"{kind}_exec_time_us"), header.get("n_ranks"))
    numbers = [float(one) for one in given if isinstance(one, int | float) and 0 < one < 1e30]
    if len(numbers) < len(given):
        return None
    size, time, ranks = numbers
    name = str(told.get(kind, ""))
    operation = operation_of(name) or name
    return {
        "collective": operation,
        "size_bytes": size * (ranks if operation in PER_RANK else 1),
        "time_s": time * 1e-6,
        "ranks": int(ranks),
        "nodes": header.get("nnodes"),
        "rank": header.get("rank"),
        "communicator": header.get("id"),
        "sequence": told.get(f"{kind}_sn"),
        "timing": told.get(f"{kind}_timing_source"),
        "algorithm": told.get(f"{kind}_algo"),
        "protocol": told.get(f"{kind}_proto"),
        "version": metadata.get("inspector_output_format_version"),
    }


READERS.add(
    "nccl-inspector",
    Reader(_sniffed, read_inspector),
    summary="NCCL inspector: JSON records of collectives and point-to-point",
    source="nccl-inspector",
)
