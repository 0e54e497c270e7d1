"""From the words of a published run to names of the library: its node, and the profile of its software."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.hardware import NodeSpec
from moesim.spec.software import SoftwareSpec

TOLERANCE = 0.05
"""Share by which a printed network rate may miss the nominal one."""

ANY_NETWORK = frozenset({"", "nvlink", "rdma"})
"""Words for a network that do not tell one kind from another."""


@dataclass(frozen=True)
class Hardware:
    """Nodes of a run.

    Parameters
    ----------
    node, count, gpus
        For a `ClusterSpec`; ``gpus`` where a run takes a part of its only node.
    overrides
        For a scenario, where a run takes a whole rack.
    assumed
        What the run did not say and the choice rests on, such as ``nic``.
    """

    node: str
    count: int
    gpus: int | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def hardware_for(
    gpu: str,
    num_gpus: int,
    gpus_per_node: int | None = None,
    nvlink_domain: int | None = None,
    nic_gbps_per_gpu: float | None = None,
    fabric: str = "",
) -> Hardware:
    """Return the node that a published run describes; a `SpecError` says what no node of that GPU has.

    What a run leaves out does not narrow the choice; among the nodes that are left the preferred one is taken.

    Examples
    --------
    >>> hardware_for("h100-sxm-80gb", 256, 8, 8, 400, "infiniband")
    Hardware(node='hgx-h100', count=32, gpus=None, overrides={}, assumed=())
    >>> hardware_for("b300", 4, 4, 8).gpus
    4
    """
    name = library.find("gpus", gpu)
    nodes = [node for node in _nodes() if library.find("gpus", node.gpu) == name]
    fitting = [
        node
        for node in nodes
        if (gpus_per_node is None or gpus_per_node <= node.gpus_per_node)
        and (nvlink_domain is None or nvlink_domain in (node.nvlink_domain, node.nvlink_domain_wired))
        and (nic_gbps_per_gpu is None or abs(nic_gbps(node) / nic_gbps_per_gpu - 1) <= TOLERANCE)
        and (fabric in ANY_NETWORK or library.get("nics", node.nic).protocol == fabric)
    ]
    if not fitting:
        asked = (
            f"{gpus_per_node} GPUs a node, domain {nvlink_domain}, {nic_gbps_per_gpu} Gb/s a GPU, network '{fabric}'"
        )
        raise SpecError.single("", "", f"no node of {name} has {asked}", "known: " + ", ".join(n.name for n in nodes))
    node = min(fitting, key=lambda node: (not node.preferred, node.name))
    size = node.gpus_per_node
    part = num_gpus if num_gpus < size else None
    if part is None and num_gpus % size:
        raise SpecError.single("", "", f"{num_gpus} GPUs are not whole nodes of {size}", f"a multiple of {size}")
    across = num_gpus > node.nvlink_domain and nic_gbps_per_gpu is None and fabric in ANY_NETWORK
    rack = node.nvlink_domain_wired
    overrides = {"node.nvlink_domain": rack} if rack and num_gpus % rack == 0 and num_gpus % node.nvlink_domain else {}
    return Hardware(node.name, max(num_gpus // size, 1), part, overrides, ("nic",) if across else ())


def nic_gbps(node: NodeSpec) -> float:
    """Return the nominal network rate of a GPU. [Gb/s]"""
    return library.get("nics", node.nic).bandwidth.value * 8e-9 * node.nics_per_node / node.gpus_per_node


def software_for(stack: str, version: str = "") -> str:
    """Return the software, or the profile of it, that a published run names with its version.

    Examples
    --------
    >>> software_for("megatron-bridge", "26.04/v0.4.0"), software_for("megatron-bridge", "25.09/v0.1.0rc4")
    ('megatron-bridge', 'megatron-bridge-2025')
    """
    name = library.find("software", stack)
    best, length = name, 0
    for spec in _descendants(name):
        for start in spec.versions:
            if version.lower().startswith(start.lower()) and len(start) > length:
                best, length = spec.name, len(start)
    return best


def software_pinned(pin: str, where: str) -> str:
    """Return the software, or the profile of it, that a pin names: ``megatron-core==0.16``; without a version the software.

    Only profiles of the same product count: the versions of what is built on it are its own.

    Parameters
    ----------
    pin
        A name, or a name and a version.
    where
        Option that it came from, for messages.

    Raises
    ------
    SpecError
        For an unknown name, and for a version whose rules nobody read, with those that are known.

    Examples
    --------
    >>> software_pinned("megatron==0.16.1", "--framework"), software_pinned("nemo==24.09", "--framework")
    ('megatron-core-2026', 'nemo')
    """
    stack, equals, version = (part.strip() for part in pin.partition("=="))
    name = library.find("software", stack)
    if not equals:
        return name
    own = [spec for spec in _descendants(name) if spec.name == name or spec.name.startswith(f"{name}-")]
    found = software_for(name, version) if version else name
    starts = [start for spec in own if spec.name == found for start in spec.versions]
    if any(version.lower().startswith(start.lower()) for start in starts):
        return found
    for spec in own:
        if _says(spec.version or "", version):
            return spec.name
    known = ", ".join(f"{spec.name} ({spec.version})" for spec in own if spec.version)
    what = f"no rules of {name} '{version}' were read"
    raise SpecError.single(where, "", what, f"known: {known}; leave the version out for {name} as it is known")


def _says(told: str, version: str) -> bool:
    """Whether a version, or a range of them, is or holds another one.

    Examples
    --------
    >>> _says("0.16", "0.16.2"), _says("0.16", "0.1"), _says("24.07-25.07", "24.12"), _says("main, 2026", "0.15")
    (True, False, True, False)
    """
    low, high = _numbers(told.partition("-")[0]), _numbers(told.partition("-")[2])
    asked = _numbers(version)
    if not low or not asked:
        return False
    return low <= asked[: len(low)] <= high if high else asked[: len(low)] == low


def _numbers(version: str) -> tuple[int, ...]:
    """Numbers of a version; none where it is something else."""
    parts = version.strip().removeprefix("v").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _descendants(name: str) -> Iterator[SoftwareSpec]:
    """Yield a software and the profiles that build on it, directly or not."""
    specs = {other: library.get("software", other) for other in library.names("software")}
    for spec in specs.values():
        step: str | None = spec.name
        while step is not None and step != name:
            step = specs[step].profile_of
        if step == name:
            yield spec


def _nodes() -> Iterator[NodeSpec]:
    for name in library.names("nodes"):
        yield library.get("nodes", name)
