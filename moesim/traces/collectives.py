"""Collectives in a timeline: what each kernel moved, as far as the file tells, in the definitions of nccl-tests.

The name of a kernel tells little: since NCCL 2.18 its protocol is always LL, and all-gathers, broadcasts and
point-to-point carry no type. Arguments of the kernel come first, then those of the operator that launched it, then the
shapes of NCCL's annotation around the launch, and the name last.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from moesim.traces.event_table import ANNOTATION, Detail, EventTable
from moesim.traces.linking import enclosing
from moesim.traces.matrix_shapes import parsed
from moesim.traces.summary import SECOND, Work

OPERATIONS = {
    "allreduce": "all-reduce",
    "allreducecoalesced": "all-reduce",
    "allgather": "all-gather",
    "allgatherbase": "all-gather",
    "allgathercoalesced": "all-gather",
    "allgatherintotensor": "all-gather",
    "allgatherintotensorcoalesced": "all-gather",
    "reducescatter": "reduce-scatter",
    "reducescatterbase": "reduce-scatter",
    "reducescattertensor": "reduce-scatter",
    "reducescattertensorcoalesced": "reduce-scatter",
    "alltoall": "all-to-all",
    "alltoallv": "all-to-all",
    "alltoallbase": "all-to-all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "send": "send-recv",
    "recv": "send-recv",
    "sendrecv": "send-recv",
}
"""Spellings of PyTorch and NCCL, without strokes and in small letters."""
BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "int8", "uint8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "short int", "float16"), 2),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("double", "long", "long int", "float64", "int64"), 8),
}
ONE_SIDED = ("all-reduce", "all-to-all", "broadcast", "reduce", "send-recv")
"""Operations whose annotation tells the size, whichever of their tensors it names."""
_KINDS = "AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|Reduce"
_IN_NAME = re.compile(rf"nccl(?:Dev|Sym\w*)?Kernel_({_KINDS})\b|nccl(?:Dev|Sym\w*)?Kernel_({_KINDS})_")


@dataclass(frozen=True)
class Collective:
    """One kernel that moves data between GPUs.

    Attributes
    ----------
    event
        Its place in the table.
    device, stream, start_ns, end_ns
        Where and when it ran. [ns]
    operation
        As the project names it; empty where nothing tells.
    kind
        Operation in the name of the kernel, by which ranks whose files tell no more are matched.
    size, dtype
        As nccl-tests count it; None where nothing tells. [B]
    group_size, group, sequence
        Ranks of the group (None where nothing tells), its name, and the number of the operation in it (-1: not told).
    told_by
        ``kernel``, ``operator``, ``annotation`` or ``name``.
    """

    event: int
    device: int
    stream: int
    start_ns: int
    end_ns: int
    operation: str
    kind: str
    size: float | None
    dtype: str
    group_size: int | None
    group: str
    sequence: int
    told_by: str

    @property
    def time_s(self) -> float:
        """How long its kernel ran, waiting for other ranks included. [s]"""
        return (self.end_ns - self.start_ns) / SECOND

    @property
    def algorithm_bandwidth(self) -> float | None:
        """Size over time: a lower bound, since the time includes waiting. [B/s]"""
        return self.size / self.time_s if self.size is not None and self.end_ns > self.start_ns else None

    @property
    def bus_bandwidth(self) -> float | None:
        """The same times the share that the busiest link carries. [B/s]"""
        rate, ranks = self.algorithm_bandwidth, self.group_size
        return None if rate is None or ranks is None else rate * bus_factor(self.operation, ranks)


def bus_factor(operation: str, ranks: int) -> float:
    """Bytes that the busiest link carries over the size, as nccl-tests define it. [-]

    Examples
    --------
    >>> bus_factor("all-reduce", 8), bus_factor("all-gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if operation == "all-reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all-gather", "reduce-scatter", "all-to-all") else 1.0


@lru_cache(maxsize=4096)
def operation_of(text: str) -> str:
    """Collective that a spelling means; empty for waits, barriers and what is none.

    Examples
    --------
    >>> operation_of("_allgather_base"), operation_of("nccl:all_to_all"), operation_of("wait")
    ('all-gather', 'all-to-all', '')
    """
    return OPERATIONS.get(re.sub(r"[^a-z]", "", text.lower().removeprefix("nccl:").partition(" ")[0]), "")


def dtype_bytes(name: str) -> int | None:
    """Bytes of an element of a type as PyTorch spells it."""
    return BYTES.get(name.lower().removeprefix("c10::").removeprefix("at::"))


def collectives(work: Work) -> list[Collective]:
    """All kernels that move data between GPUs, in order of their start."""
    table = work.table
    places = np.flatnonzero(work.communication)
    order = places[np.argsort(table.start[work.links.work[places]], kind="stable")]
    around = _annotations(work, order)
    return [_collective(work, int(place), notes) for place, notes in zip(order.tolist(), around, strict=True)]


def _annotations(work: Work, places: Any) -> list[int]:
    """NCCL's annotation around the launch of each kernel, -1 for none."""
    table = work.table
    named = np.array([name.startswith("nccl:") for name in table.names], dtype=bool)
    notes = np.flatnonzero(table.of(ANNOTATION) & (named[table.name] if len(named) else False))
    launches = work.links.launch[places]
    found = np.full(len(places), -1, dtype=np.int64)
    found[launches >= 0] = enclosing(table, notes, launches[launches >= 0])
    return [int(one) for one in found]


def _collective(work: Work, place: int, note: int) -> Collective:
    table = work.table
    event, op = int(work.links.work[place]), int(work.links.op[place])
    name = table.name_of(event)
    found = _IN_NAME.search(name)
    kind = operation_of(found[1] or found[2]) if found else ""
    told, told_by, operation = table.detail_of(event), "kernel", ""
    size: float | None = None
    if not told.collective and op >= 0:
        told, told_by = table.detail_of(op), "operator"
    if told.collective:
        operation = operation_of(told.collective)
        size = message_bytes(operation, told)
    elif note >= 0:
        told, told_by, operation = table.detail_of(note), "annotation", operation_of(table.name_of(note))
        size = tensor_bytes(told) if operation in ONE_SIDED else None
    if not operation:
        told, told_by, operation = Detail(), "name", kind
    group = told.group_size if told.group_size > 0 else table.world_size if told_by == "annotation" else None
    return Collective(
        event=event,
        device=int(table.device[event]),
        stream=int(table.stream[event]),
        start_ns=int(table.start[event]),
        end_ns=int(table.start[event] + table.duration[event]),
        operation=operation,
        kind=kind or str(work.family[place]),
        size=size,
        dtype=told.dtype,
        group_size=group,
        group=told.group,
        sequence=told.sequence,
        told_by=told_by,
    )


def message_bytes(operation: str, told: Detail) -> float | None:
    """Size of an operation from its elements, as nccl-tests count it. [B]"""
    width = dtype_bytes(told.dtype)
    elements = told.out_elements if operation == "all-gather" else told.in_elements
    return None if width is None or elements < 0 or not operation else float(width * elements)


def tensor_bytes(told: Detail) -> float | None:
    """Bytes of the first tensor (or list of tensors) of an operator."""
    dims, types = parsed(told.dims), parsed(told.types)
    if not isinstance(dims, list) or not dims or not isinstance(types, list) or not types:
        return None
    width = dtype_bytes(str(types[0]))
    first = dims[0] if isinstance(dims[0], list) else dims
    tensors = first if first and isinstance(first[0], list) else [first]
    try:
        return None if width is None else float(width * sum(math.prod(sizes) for sizes in tensors))
    except TypeError:
        return None


def ranks_of(table: EventTable, told: Collective) -> tuple[int, ...]:
    """Ranks of the group of a collective; empty where the file does not tell."""
    if told.group in table.groups:
        return table.groups[told.group]
    listed = parsed(table.detail_of(told.event).ranks)  # text that is cut at 30 ranks is no list
    return tuple(listed) if isinstance(listed, list) and all(isinstance(one, int) for one in listed) else ()
