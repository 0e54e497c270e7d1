"""The machine that a trace was taken on, and what the model says of its collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moesim.base.errors import SpecError
from moesim.cost.collectives import collective_time
from moesim.cost.from_spec import build_gpu, build_links
from moesim.cost.machine import Gpu, Group, Links
from moesim.spec import library
from moesim.spec.spellings import gpu_of, node_of
from moesim.traces.collectives import Collective
from moesim.traces.summary import Work

PRICED = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv")
"""Collectives that have a price."""


@dataclass(frozen=True)
class Machine:
    """A GPU and its links, and how many GPUs one NVLink domain holds."""

    gpu: Gpu
    links: Links | None
    per_node: float


def machine_of(gpu: str, node: str | None = None) -> Machine:
    """GPU with the links of a node, or of its usual one."""
    found = node or node_of(gpu)
    if found is None:
        return Machine(build_gpu(library.get("gpus", gpu)), None, 8.0)
    spec = library.get("nodes", found)
    links = build_links(spec, library.get("nics", spec.nic), library.get("fabrics", spec.default_fabric), True)
    return Machine(build_gpu(library.get("gpus", spec.gpu)), links, float(spec.gpus_per_node))


def trace_machine(works: Sequence[Work], gpu: str | None) -> Machine:
    """Machine that a trace was taken on."""
    name = library.find("gpus", gpu.lower()) if gpu else gpu_in(works)
    if name is None:
        told = sorted({one for work in works for one in work.table.gpus if one})
        what = f"the trace names {', '.join(told)}, which is not known" if told else "the trace names no GPU"
        raise SpecError.single("--gpu", "", what, "give --gpu, such as --gpu h100-sxm-80gb")
    return machine_of(name)


def gpu_in(works: Sequence[Work]) -> str | None:
    """Spec of the GPU that the files name; None where they name none that is known."""
    names = {gpu_of(name) for work in works for name in work.table.gpus if name}
    return names.pop() if len(names) == 1 else None


def collective_price(one: Collective, machine: Machine) -> float | None:
    """Time of a collective on GPUs that fill one node after the other; None where size or group are not told. [s]"""
    if machine.links is None or one.operation not in PRICED or not one.size or not one.group_size:
        return None
    if one.group_size < 2:
        return None
    group = Group(float(one.group_size), min(float(one.group_size), machine.per_node))
    return float(collective_time(one.operation, one.size, group, machine.links))
