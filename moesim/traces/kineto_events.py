"""Typed events of a Kineto file: only the fields that are used are decoded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

EMPTY = Raw(b"")
Scalar = int | float | str | bool | None


class Args(Struct, gc=False):
    """Arguments of an event."""

    device: Scalar = None
    stream: Scalar = None
    correlation: Scalar = None
    external: Scalar = field(default=None, name="External id")
    external_old: Scalar = field(default=None, name="external id")
    dims: Raw = field(default=EMPTY, name="Input Dims")
    dims_old: Raw = field(default=EMPTY, name="Input dims")
    types: Raw = field(default=EMPTY, name="Input type")
    strides: Raw = field(default=EMPTY, name="Input Strides")
    values: Raw = field(default=EMPTY, name="Concrete Inputs")
    collective: Scalar = field(default=None, name="Collective name")
    in_elements: Scalar = field(default=None, name="In msg nelems")
    out_elements: Scalar = field(default=None, name="Out msg nelems")
    dtype: Scalar = None
    group_size: Scalar = field(default=None, name="Group size")
    group: Scalar = field(default=None, name="Process Group Name")
    group_id: Scalar = field(default=None, name="Process Group ID")
    group_text: Scalar = field(default=None, name="Process Group Description")
    ranks: Scalar = field(default=None, name="Process Group Ranks")
    sequence: Scalar = field(default=None, name="Seq")
    bytes: Scalar = None
    grid: list[Any] | Scalar = None
    sync_kind: Scalar = field(default=None, name="cuda_sync_kind")
    wait_stream: Scalar = field(default=None, name="wait_on_stream")
    wait_event: Scalar = field(default=None, name="wait_on_cuda_event_record_corr_id")


class AnyEvent(Struct, gc=False):
    """An event without its times."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    args: Args | None = None


class Event(AnyEvent, gc=False):
    """An event; times in microseconds."""

    ts: int | float | None = None
    dur: int | float | None = None


class PreciseEvent(AnyEvent, gc=False):
    """The same with times as decimals."""

    ts: Decimal | None = None
    dur: Decimal | None = None


NO_ARGS = Args()
_NAMES = {one.encode_name: one.name for one in msgspec.structs.fields(Args)}
_RAW = ("dims", "dims_old", "types", "strides", "values")


def tolerant_event(found: dict[str, Any]) -> Event:
    """Event of a repaired object, whatever the types of its values."""
    given = found.get("args")
    args: dict[str, Any] = {}
    for key, value in given.items() if isinstance(given, dict) else ():
        name = _NAMES.get(key)
        if name is None:
            continue
        if name in _RAW:
            args[name] = Raw(msgspec.json.encode(value))
        elif name == "grid":
            args[name] = value if isinstance(value, list) else None
        else:
            args[name] = value if isinstance(value, int | float | str) else None
    event: Any = Event(args=Args(**args) if args else None)
    for name in ("ph", "cat", "name"):
        setattr(event, name, str(found.get(name) or ""))
    for name in ("pid", "tid"):
        setattr(event, name, value if isinstance(value := found.get(name), int | str) else None)
    event.ts, event.dur = found.get("ts"), found.get("dur")  # numbers with decimals come as text
    made: Event = event
    return made
