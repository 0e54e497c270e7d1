"""What a collective should take on a cluster, and whether a measurement of it is healthy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from moesim.base.errors import SpecError, blamed, did_you_mean
from moesim.base.units import format_quantity
from moesim.cost import certainty as uncertain
from moesim.cost.certainty import NET, NODE, collective_regime
from moesim.cost.collectives import COLLECTIVES, choice
from moesim.cost.collectives.channels import num_channels
from moesim.cost.collectives.nccl import ALGORITHMS, PROTOCOLS
from moesim.cost.from_spec import build_link_residuals, build_links
from moesim.cost.machine import Group, Links, Residuals
from moesim.fabric.reach import MembersReach, Reach
from moesim.fabric.resolve import Parts, network, parts_of
from moesim.spec import library
from moesim.spec.calibration import CalibrationSpec
from moesim.spec.fabric import FabricSpec
from moesim.spec.fabric_names import oversubscribed, split_name
from moesim.spec.hardware import NodeSpec
from moesim.spec.own import of, own_links
from moesim.spec.scenario import cluster_mapping
from moesim.spec.validation import validate
from moesim.spec.yaml_file import Document

UNMEASURED = ("collnet", "symmetric", "copy-engine", "hierarchical")
"""Ways that no calibration has rows of."""
SCOPES = {"all-reduce": "2 (n - 1) / n", "send-recv": "1"}


@dataclass(frozen=True)
class Setting:
    """A collective on a cluster: its ranks, links, and the residuals of node and fabric."""

    node: str
    fabric: str
    group: Group
    links: Links
    residuals: Mapping[str, Residuals]


@dataclass(frozen=True)
class CollectivePrice:
    """Expected time of one call with its interval, and what was chosen. [s, B/s]"""

    collective: str
    size: float
    group: Group
    time: float
    low: float
    high: float
    algorithm: str
    protocol: str
    channels: float
    binding: str
    evidence: str
    why: tuple[str, ...] = ()

    @property
    def algbw(self) -> float:
        """Size over time. [B/s]"""
        return self.size / self.time

    @property
    def busbw(self) -> float:
        """Rate that does not depend on the ranks, as nccl-tests define it. [B/s]"""
        return self.algbw * bus_factor(self.collective, self.group)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, units in the keys."""
        return {
            "collective": self.collective,
            "size_bytes": self.size,
            "ranks": self.group.size,
            "gpus_per_node": self.group.per_node,
            "nodes": self.group.nodes,
            "time_s": self.time,
            "low_s": self.low,
            "high_s": self.high,
            "algbw_bytes_per_s": self.algbw,
            "busbw_bytes_per_s": self.busbw,
            "busbw_definition": f"algbw x {bus_words(self.collective)}",
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            "channels": self.channels,
            "binding": self.binding,
            "evidence": self.evidence,
            "evidence_reasons": list(self.why),
        }


def bus_factor(collective: str, group: Group) -> float:
    """Bus over algorithm bandwidth, as nccl-tests define it. [-]"""
    share = float((group.size - 1) / group.size)
    return {"all-reduce": 2 * share, "send-recv": 1.0}.get(collective, share)


def bus_words(collective: str) -> str:
    """The factor in words."""
    return SCOPES.get(collective, "(n - 1) / n")


def collective_named(text: str) -> str:
    """Name of a collective, also as nccl-tests and frameworks spell it."""
    plain = text.lower().replace("_", "").replace("-", "")
    known = {name.replace("-", ""): name for name in COLLECTIVES} | {"sendreceive": "send-recv", "a2a": "all-to-all"}
    if plain not in known:
        raise SpecError.single("COLLECTIVE", "", f"no collective '{text}'", did_you_mean(text, COLLECTIVES))
    return known[plain]


def setting(
    cluster: str,
    gpus_per_node: int | None = None,
    *,
    fabric: str | None = None,
    algorithms: str | None = None,
    protocols: str | None = None,
    nvls: bool = True,
    pxn: bool | None = None,
    own: Sequence[Path] = (),
) -> Setting:
    """Ranks and links of ``NODE:count``, with what NCCL_ALGO, NCCL_PROTO and NCCL_NVLS_ENABLE leave on.

    ``fabric``: between the nodes, else their usual one; the group is alone on it. ``pxn``: whether messages to another rail
    go over NVLink first; left out, as the fabric says. The user's `own` calibrations of its
    node and fabric stand in for those that are shipped.
    """
    try:
        parts = cluster_mapping(cluster)
    except ValueError as error:
        raise SpecError.single("--cluster", "", str(error)) from None
    with blamed("--cluster"):
        node = library.get("nodes", parts["node"])
    with blamed("--fabric"):
        plain, ratio = split_name(fabric or node.default_fabric)
        plain = library.find("fabrics", plain)
    mine = own_links(own, node.name, plain, "--calibrations")
    node = validate(NodeSpec, _laid("nodes", node.name, mine))
    wired = oversubscribed(validate(FabricSpec, _laid("fabrics", plain, mine)), ratio)
    if pxn is not None:
        wired = wired.model_copy(update={"topology": wired.topology.model_copy(update={"rails_forward": pxn})})
    parts_named = parts_of(wired, node)
    count = int(parts["count"])
    used = gpus_per_node or node.gpus_per_node
    if not 1 <= used <= node.gpus_per_node:
        what = f"{used} GPUs of a node that has {node.gpus_per_node}"
        raise SpecError.single("--gpus-per-node", "", what, f"1 to {node.gpus_per_node}")
    ranks = count * used
    if ranks < 2:
        raise SpecError.single("--cluster", "", "one GPU has nobody to talk to", "give two or more")
    domain = min(ranks, nvlink_domain(node, count) // node.gpus_per_node * used)
    links = build_links(node, parts_named.nic, parts_named.fabric, nvls)
    listed = _listed(algorithms, ALGORITHMS, "--algo")
    chosen = replace(links.nccl, algorithms=listed, protocols=_listed(protocols, PROTOCOLS, "--proto"))
    if listed and not str(algorithms).startswith("^"):  # naming a way that is off switches it on
        chosen = replace(
            chosen,
            collnet="collnet" in listed,
            symmetric="symmetric" in listed,
            copy_engine="copy-engine" in listed,
            hierarchical="hierarchical" in listed,
        )
    return Setting(
        node.name,
        parts_named.fabric.name,
        Group(float(ranks), float(max(1, domain)), _reach(parts_named, count, used, max(1, domain))),
        replace(links, nccl=chosen),
        build_link_residuals(node.name, plain, mine),
    )


def nvlink_domain(node: NodeSpec, count: int) -> int:
    """GPUs of an NVLink domain; where only whole racks fill all domains, those that are wired. [-]"""
    wired, domain, ranks = node.nvlink_domain_wired, node.nvlink_domain, node.gpus_per_node * count
    return wired if wired and ranks % domain and ranks % wired == 0 else domain


def _reach(parts: Parts, nodes: int, used: int, domain: int) -> Reach:
    """What the fabric leaves one group of the first GPUs of each node."""
    each = parts.node.gpus_per_node
    joined = network(parts, nodes * each)
    first = np.arange(nodes, dtype=np.int64)[:, None] * each
    members = (first + np.arange(used, dtype=np.int64)).reshape(1, -1)
    return MembersReach(joined, members, domain)


def _laid(kind: str, name: str, mine: Sequence[CalibrationSpec]) -> Document:
    return library.with_links(library.document(kind, name), kind, of(mine, name))


def _listed(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = [name.strip().lower() for name in text.lstrip("^").split(",")]
    for name in names:
        if name not in known:
            raise SpecError.single(option, "", f"no '{name}'", did_you_mean(name, known))
    left = tuple(name for name in known if name not in names) if text.startswith("^") else tuple(names)
    if not left:
        raise SpecError.single(option, "", f"'{text}' leaves nothing on", f"one of {', '.join(known)}")
    return left


def price(collective: str, size: float, where: Setting, explain: bool = True) -> CollectivePrice:
    """Expected time of one call; what binds it is left out unless it is to be explained."""
    group, links = where.group, where.links
    best = choice(collective, size, group, links)
    if not math.isfinite(best.time):
        raise SpecError.single("--algo", "", f"nothing that is left on serves {collective} on this group")
    if best.algorithm in UNMEASURED:
        low, high, _ = uncertain.quantiles(None, "", {})
        evidence = "datasheet"
        why: tuple[str, ...] = (f"nobody measured {best.algorithm}",)
    else:
        low, high, evidence, why = quantiles(collective, size, group, where)
    return CollectivePrice(
        collective,
        size,
        group,
        best.time,
        best.time * math.exp(-high),
        best.time * math.exp(-low),
        best.algorithm,
        best.protocol,
        float(num_channels(best.algorithm, best.protocol, size, group)),
        binding(collective, size, group, links) if explain else "",
        evidence,
        why,
    )


def quantiles(collective: str, size: float, group: Group, where: Setting) -> tuple[float, float, str, tuple[str, ...]]:
    """5 % and 95 % quantile of log(predicted / measured) on rows that no fit saw; the grade of the evidence, and why."""
    known = where.residuals.get(NET if group.nodes > 1 else NODE)
    regime = str(collective_regime(collective, size, group))
    quantities = {"size_bytes": size} | ({"nodes": group.nodes} if group.nodes > 1 else {"ranks": group.size})
    low, high, _ = uncertain.quantiles(known, regime, quantities)
    return low, high, *uncertain.evidence(known, regime, quantities)


FASTER = 1.25


def binding(collective: str, size: float, group: Group, links: Links) -> str:
    """Link or start-up that the time depends on most: what a quarter more of it saves decides."""
    now = choice(collective, size, group, links).time
    fits, names = links.fits, {field: getattr(links, field) for field in vars(links)}
    parts: dict[str, Callable[[str], bool]] = {
        "NVLink": lambda name: name.startswith(("nvl", "p2p", "alltoall")) and name.endswith("bandwidth"),
        "NIC": lambda name: name.startswith("nic") and name.endswith("bandwidth"),
        "start-up latency": lambda name: "latency" in name or name.endswith(("ramp", "half_bytes")),
    }
    saved = {}
    for what, member in parts.items():
        up = -1 if what == "start-up latency" else 1
        changed = {name: value * FASTER**up for name, value in names.items() if member(name) and name != "fits"}
        if what == "start-up latency":
            changed["fits"] = {n: v / FASTER if n.endswith("latency") else v for n, v in fits.items()}
            changed = {name: value for name, value in changed.items() if name == "fits" or not name.endswith("latency")}
        saved[what] = now - choice(collective, size, group, replace(links, **changed)).time
    return max(saved, key=lambda what: saved[what])


def shown(value: float, dimension: str) -> str:
    """Quantity for people; rates in GB/s of 1e9 bytes."""
    return f"{value / 1e9:.1f} GB/s" if dimension == "rate" else format_quantity(value, dimension)


def sweep_sizes(smallest: float = 1024.0, largest: float = 2.0**34) -> list[float]:
    """Sizes of a sweep: powers of two. [B]"""
    return [float(size) for size in 2.0 ** np.arange(math.log2(smallest), math.log2(largest) + 0.5)]


def sweep(collective: str, where: Setting) -> list[Mapping[str, Any]]:
    """Prices of the sizes of a sweep as plain values."""
    return [price(collective, size, where).to_dict() for size in sweep_sizes()]
