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
SICK_START = 0.25
"""The same where more than half of the time is start-up. [-]"""
LONG = 2.0**36
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


def is_sick(expected: CollectivePrice, time: float, where: Setting) -> bool:
    """Whether a measured time is too long for a healthy run.

    Where starting takes most of the time, releases and ways of launching differ by far more than where bytes do.
    """
    wires = expected.size / limit(
        expected.collective, float(expected.group.size), float(expected.group.per_node), where
    )
    share = SICK if wires > expected.time / 2 else SICK_START
    return time > expected.high and time > expected.time / share


def limit(collective: str, ranks: float, per_node: float, where: Setting) -> float:
    """Algorithm bandwidth of a very long message. [B/s]"""
    return LONG / float(choice(collective, LONG, Group(ranks, per_node), where.links).time)


def verdict(expected: CollectivePrice, time: float, where: Setting) -> dict[str, Any]:
    """Healthy or sick, and what may be wrong, the likely causes first."""
    rate = bus_factor(expected.collective, expected.group) * expected.size / time
    sick = is_sick(expected, time, where)
    found: dict[str, Any] = {
        "measured_s": time,
        "measured_busbw_bytes_per_s": rate,
        "share_of_expected": expected.time / time,
        "verdict": "sick" if sick else "healthy",
    }
    if not sick:
        quick = time < expected.low
        found["note"] = (
            "faster than the interval: check size, ranks and definition of the rate" if quick else "within expectation"
        )
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
