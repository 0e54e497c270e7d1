"""Whether a measured collective is healthy, and what may be wrong where it is not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.units import parse_quantity
from moesim.cost.collectives import choice
from moesim.cost.machine import Group, Links
from moesim.studies.collectives import CollectivePrice, Setting, bus_factor

SICK = 0.75
"""Share of the expected rate below which a measurement is called sick, where it is outside the interval too. [-]"""
LAUNCH = 100e-6
"""How much longer healthy runs may take to start; some that launch anew for every call need 90 us for any small size. [s]"""
STEADY = 2.0**28
"""Size from which one message over NVLink takes the rate of its wires: below, releases differ in the channels it gets. [B]"""
SHORTEST = 5e-7
"""Time that no message between two GPUs undercuts. [s]"""
PERFECT = 1.15
"""How much faster than links without any loss a measurement may be before it is called impossible. [-]"""
NOTES = {
    "healthy": "within expectation",
    "impossible": "faster than the wires: check the unit, the size and the ranks",
    "cannot tell": "slower than expected, but not than a healthy run may be; a fault of the kinds below would look so too",
}
SOCKETS, STAGED = 3.1e9, 12e9
"""Bus bandwidth a node of TCP sockets over IP on InfiniBand; a GPU's NIC reached through host memory. [B/s]"""


@dataclass(frozen=True)
class Cause:
    """What may be wrong, the bus bandwidth it would give, and how it shows. [B/s]"""

    what: str
    busbw: float
    shows: str


def measured_time(text: str, collective: str, size: float, group: Group) -> float:
    """Seconds of a measurement told as a time or, as nccl-tests print it, as bus bandwidth. [s]"""
    for dimension in ("bandwidth", "time"):
        try:
            value = parse_quantity(text, dimension)
        except ValueError:
            continue
        if value <= 0:
            break
        return bus_factor(collective, group) * size / value if dimension == "bandwidth" else value
    raise SpecError.single("--measured", "", f"'{text}' is no rate and no time", "write 30GB/s (busbw) or 2.4ms")


def judged(expected: CollectivePrice, time: float, where: Setting) -> str:
    """Whether a measured time is that of a healthy run: ``healthy``, ``sick``, ``cannot tell`` or ``impossible``.

    A run that is much slower than expected may be either where it is not slower than the interval, where it is slower by
    no more than a launch (releases and ways of launching differ), or where it is one short message over NVLink.
    """
    if time < max(SHORTEST, fastest(expected, where) / PERFECT):
        return "impossible"
    if time <= expected.time / SICK:
        return "healthy"
    group = expected.group
    known = expected.collective != "send-recv" or group.nodes > 1 or expected.size >= STEADY
    late = time > expected.high and time > expected.time + LAUNCH
    return "sick" if known and late else "cannot tell"


def fastest(expected: CollectivePrice, where: Setting) -> float:
    """Time that the bytes take at the rate of the wires, without any start. [s]

    Each rank sends its part over the NVLinks of its GPU, and its share of what leaves the domain over its NIC; sums in the
    switch need half of what a ring does.
    """
    group, links, collective = expected.group, where.links, expected.collective
    inside = float(max(links.nvlink_bandwidth, links.p2p_bandwidth, links.alltoall_bandwidth))
    units = group.nodes if group.nodes > 1 and collective != "all-to-all" else group.size
    factor = 1.0 if collective in ("all-reduce", "send-recv") else float((units - 1) / units)
    if collective == "all-to-all" and group.nodes > 1:
        away = float((group.size - group.per_node) / group.size)
        return expected.size * max(away / float(links.nic_bandwidth), (factor - away) / inside)
    if group.nodes > 1:
        inside = min(inside, float(links.nic_bandwidth * (1 if collective == "send-recv" else group.per_node)))
    return expected.size * factor / inside


def verdict(expected: CollectivePrice, time: float, where: Setting) -> dict[str, Any]:
    """Healthy or sick, and what may be wrong, the likely causes first."""
    rate = bus_factor(expected.collective, expected.group) * expected.size / time
    called = judged(expected, time, where)
    found: dict[str, Any] = {
        "measured_s": time,
        "measured_busbw_bytes_per_s": rate,
        "share_of_expected": expected.time / time,
        "verdict": called,
    } | ({"note": NOTES[called]} if called in NOTES else {})
    if called == "healthy" and time < expected.low:
        found["note"] = "faster than the interval: check size, ranks and definition of the rate"
    if called in ("healthy", "impossible"):
        return found
    ranked = sorted(causes(expected, where), key=lambda one: abs(math.log(one.busbw / rate)))
    found["causes"] = [
        {"cause": one.what, "busbw_bytes_per_s": one.busbw, "how_it_shows": one.shows} for one in ranked[:5]
    ]
    return found


def causes(expected: CollectivePrice, where: Setting) -> list[Cause]:
    """What a fault of each kind would leave of the bus bandwidth."""
    group, links, size = expected.group, where.links, expected.size
    factor = bus_factor(expected.collective, group)

    def rate(changed: Links) -> float:
        time = choice(expected.collective, size, group, changed).time
        return factor * size / time if math.isfinite(time) else expected.busbw

    def scaled(links: Links, share: float, names: tuple[str, ...]) -> Links:
        return replace(links, **{name: getattr(links, name) * share for name in names})

    nvlink = ("nvlink_bandwidth", "nvls_bandwidth", "p2p_bandwidth", "alltoall_bandwidth")
    found = [
        Cause(
            "half of the NVLinks of one GPU are down",
            rate(scaled(links, 0.5, nvlink)),
            "nvidia-smi nvlink -s; one node alone is slow too",
        ),
        Cause(
            "LL is forced (NCCL_PROTO=LL)",
            rate(replace(links, nccl=replace(links.nccl, protocols=("ll",)))),
            "large sizes suffer, small ones do not; env | grep NCCL",
        ),
    ]
    if links.nvls and expected.algorithm.startswith("nvls"):
        found.append(
            Cause(
                "NVLS is off",
                rate(replace(links, nvls=False)),
                "NCCL_NVLS_ENABLE=0 or no Fabric Manager; all-reduce only",
            )
        )
    if group.nodes > 1:
        nic = ("nic_bandwidth",)
        found += [
            Cause(
                "one NIC or port at half rate, or static hashing puts two flows on one up-link",
                rate(scaled(links, 0.5, nic)),
                "test pairs of nodes: pairs with one node are all slow, or pairs change from run to run",
            ),
            Cause(
                "three and more flows collide on one up-link (no adaptive routing)",
                rate(scaled(links, 0.3, nic)),
                "varies from run to run and with the nodes; more QPs a connection help",
            ),
            Cause(
                "NICs reached through host memory (no GPUDirect RDMA)",
                rate(scaled(links, STAGED / float(links.nic_bandwidth), nic)),
                "NCCL_DEBUG=INFO shows no GDRDMA; CPU memory traffic is high",
            ),
            Cause(
                "TCP sockets instead of RDMA",
                SOCKETS * (1.0 if expected.collective != "all-to-all" else 1 / float(group.per_node)),
                "NCCL_DEBUG=INFO shows NET/Socket; the rate hardly depends on the GPUs a node",
            ),
        ]
        if group.per_node > 1:
            found.append(
                Cause(
                    "all ranks of a node share one NIC",
                    rate(scaled(links, 1 / float(group.per_node), nic)),
                    "NCCL_IB_HCA names one port, or the topology hides the others",
                )
            )
    return [one for one in found if one.busbw < 0.98 * expected.busbw]
