"""Execution traces: operators with their dependencies, of PyTorch (JSON) and of Chakra (JSON and protobuf).

PyTorch's have no times. Chakra's protobuf is a sequence of messages, each behind its length: one about the trace, then
nodes.

References
----------
PyTorch ExecutionTraceObserver, schemas 1.0.1 to 1.1.1; mlcommons chakra (et_def.proto)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.traces.damage import Damage
from moesim.traces.opening import READERS, Reader
from moesim.traces.records import Records
from moesim.traces.stream import whole

KINDS = {4: "compute", 5: "send", 6: "receive", 7: "collective", 1: "metadata", 2: "load", 3: "store"}
NO_NODE, CUT = "node left out: no mapping or without an id", "file is cut: what came before is read"


def _pytorch(head: bytes) -> bool:
    return re.match(rb'\s*\{[^{\[]{0,400}"schema"\s*:\s*"', head) is not None


def _chakra(head: bytes) -> bool:
    return b'"workload_graph"' in head


def _protobuf(head: bytes) -> bool:
    """Whether the file begins with the message about a trace, whose attributes (or version) come first."""
    try:
        if head.lstrip()[:1] in (b"{", b"["):
            return False
        size, place = _varint(head, 0)
        return (
            0 < size < 1 << 20
            and head[place] in (0x0A, 0x12)
            and re.search(rb"version|schema|\d\.\d", head[:96]) is not None
        )
    except (IndexError, ValueError):
        return False


def read_pytorch(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Read an execution trace of PyTorch."""
    damage = Damage()
    found = _loaded(path, damage)
    nodes = found.get("nodes")
    records = [_pytorch_node(one) for one in _nodes(path, nodes, "nodes", damage)]
    counts = {"nodes": len(records), **_operators(records)}
    return Records(str(path), "pytorch-et", tuple(records), counts, damage.counts, damage.first)


def read_chakra(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Read Chakra's JSON."""
    damage = Damage()
    found = _loaded(path, damage)
    records = [_chakra_node(one) for one in _nodes(path, found.get("workload_graph"), "workload_graph", damage)]
    counts = {"nodes": len(records), **Counter(one["kind"] for one in records)}
    return Records(str(path), "chakra", tuple(records), counts, damage.counts, damage.first)


def read_protobuf(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Read Chakra's protobuf."""
    damage = Damage()
    messages = list(_messages(whole(path, damage.note), damage))
    if not messages:
        raise SpecError.single(str(path), "", "holds no message", "give an execution trace of Chakra")
    records = [_message_node(one) for one in messages[1:]]
    counts = {"nodes": len(records), **Counter(one["kind"] for one in records)}
    return Records(str(path), "chakra-protobuf", tuple(records), counts, damage.counts, damage.first)


def _loaded(path: Path, damage: Damage) -> dict[str, Any]:
    try:
        found = json.loads(whole(path, damage.note))
    except (ValueError, RecursionError) as error:
        raise SpecError.single(str(path), "", f"is no JSON: {error}", "") from None
    if not isinstance(found, dict):
        raise SpecError.single(str(path), "", "is no mapping", "")
    return found


def _nodes(path: Path, nodes: Any, key: str, damage: Damage) -> list[dict[str, Any]]:
    if not isinstance(nodes, list):
        raise SpecError.single(str(path), key, "is no list", "give an execution trace")
    good = [one for one in nodes if isinstance(one, dict) and ("id" in one or "Id" in one)]
    damage.note(NO_NODE, count=len(nodes) - len(good))
    return good


def _pytorch_node(one: dict[str, Any]) -> dict[str, Any]:
    """Node of the flat schema, or of the one with attributes."""
    listed = one.get("attrs")
    attributes = {
        str(part.get("name")): part.get("value")
        for part in (listed if isinstance(listed, list) else [])
        if isinstance(part, dict)
    }
    inputs = one.get("inputs")
    nested = inputs if isinstance(inputs, dict) else {}
    return {
        "id": one.get("id"),
        "name": one.get("name"),
        "parent": one.get("parent", one.get("ctrl_deps")),
        "record_id": one.get("rf_id", attributes.get("rf_id")),
        "shapes": one.get("input_shapes", nested.get("shapes")),
        "types": one.get("input_types", nested.get("types")),
        "collective": attributes.get("collective_name"),
        "time_s": None,
    }


def _operators(records: list[dict[str, Any]]) -> dict[str, int]:
    names = [str(one["name"]) for one in records]
    return {
        "operators": sum(name.startswith("aten::") for name in names),
        "collectives": sum(name == "record_param_comms" for name in names),
    }


def _chakra_node(one: dict[str, Any]) -> dict[str, Any]:
    def get(*names: str) -> Any:
        return next((one[name] for name in names if name in one), None)

    time = get("runtime", "duration_micros")
    return {
        "id": get("Id", "id"),
        "name": get("Name", "name"),
        "kind": KINDS.get(get("NodeType", "type"), "other"),
        "parents": get("data_deps", "dataDeps"),
        "control": get("ctrlDeps", "ctrl_deps"),
        "time_s": time * 1e-6 if isinstance(time, int | float) else None,
    }


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """Number and the place behind it."""
    value = shift = 0
    while True:
        byte = raw[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("number of more than 64 bits")


def _messages(raw: bytes, damage: Damage) -> Iterator[dict[int, list[Any]]]:
    place = 0
    while place < len(raw):
        try:
            size, begin = _varint(raw, place)
            if begin + size > len(raw):
                raise IndexError
            yield _fields(raw[begin : begin + size])
        except (IndexError, ValueError):
            damage.note(CUT, place)
            return
        place = begin + size


def _fields(raw: bytes) -> dict[int, list[Any]]:
    """Fields of a message by number: numbers, or bytes."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(raw):
        key, place = _varint(raw, place)
        wire = key & 7
        value: Any
        if wire == 0:
            value, place = _varint(raw, place)
        elif wire == 2:
            size, place = _varint(raw, place)
            if place + size > len(raw):
                raise IndexError
            value, place = raw[place : place + size], place + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, place = raw[place : place + size], place + size
        else:
            raise ValueError("unknown kind of field")
        found.setdefault(key >> 3, []).append(value)
    return found


def _message_node(fields: dict[int, list[Any]]) -> dict[str, Any]:
    """Node: id 1, name 2, kind 3, dependencies 4 and 5 (packed), start 6 and duration 7 in microseconds."""

    def one(number: int) -> Any:
        return fields[number][0] if number in fields else None

    name, time = one(2), one(7)
    return {
        "id": one(1),
        "name": name.decode("utf-8", errors="replace") if isinstance(name, bytes) else None,
        "kind": KINDS.get(one(3), "other"),
        "parents": _packed(fields.get(5, [])),
        "control": _packed(fields.get(4, [])),
        "time_s": time * 1e-6 if isinstance(time, int) else None,
    }


def _packed(values: list[Any]) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        place = 0
        while place < len(value):
            number, place = _varint(value, place)
            found.append(number)
    return found


READERS.add(
    "pytorch-et",
    Reader(_pytorch, read_pytorch),
    summary="PyTorch execution trace: JSON",
    source="pytorch-execution-trace",
)
READERS.add("chakra", Reader(_chakra, read_chakra), summary="Chakra: JSON", source="chakra")
READERS.add("chakra-protobuf", Reader(_protobuf, read_protobuf), summary="Chakra: protobuf", source="chakra")
