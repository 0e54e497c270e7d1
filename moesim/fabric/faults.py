"""Faults: parts that are gone or slow, and what groups of ranks still get.

A fault is written ``KIND:TARGET``: ``nic:node3.rail5``, ``rail:5``, ``switch:spine0.3``, ``link:leaf0-spine0.3``,
``node:3`` or ``degrade:spine=0.5`` (the links into a tier at a share of their bandwidth).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from moesim.base.errors import SpecError, closest, did_you_mean
from moesim.fabric.graph import Topology, Vertex
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.layout import Ints, Layout, Pattern
from moesim.fabric.measures import fair_shares, reachable
from moesim.fabric.mesh import FullMesh
from moesim.fabric.routes import Loads, group_loads
from moesim.fabric.tiers import Reduced
from moesim.fabric.torus import Torus

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class GroupRates:
    """What each group of a layout gets while all run. [B/s for each rank]

    ``rates`` by group, 0 where a rank is lost; ``suffering``: groups with less than the best one.
    """

    rates: tuple[float, ...]

    @property
    def suffering(self) -> tuple[int, ...]:
        """Groups with less than the best one."""
        best = max(self.rates)
        return tuple(number for number, rate in enumerate(self.rates) if rate < best * (1 - 1e-9))


def with_fault(topology: Topology, fault: str, gpus_per_node: int = 1) -> Topology:
    """Return the graph without what a fault takes away; a `SpecError` where the rest falls apart."""
    kind, target = _parts(fault)
    graph = topology.graph.copy()
    KINDS[kind](graph, _Place(fault, topology.fabric, gpus_per_node), target)
    changed = Topology(graph, topology.fabric)
    parts = reachable(changed)
    if len(parts) > 1:
        cut = sorted(int(vertex[1]) for part in parts[1:] for vertex in part)
        what = f"leaves {len(parts)} parts that cannot reach each other; GPU {cut[0]} is cut off"
        raise SpecError.single(f"--fault {fault}", "", what, "name a fault that the network survives")
    return changed


def with_degraded(fabric: Reduced, fault: str) -> Reduced:
    """Return the tiers with the links into one of them slowed down, for fabrics of any size."""
    kind, target = _parts(fault)
    if kind != "degrade":
        raise SpecError.single(
            f"--fault {fault}", "", "takes the graph of every link", "fewer GPUs, or degrade:TIER=SHARE"
        )
    tier, share = _share(fault, target, _tiers(fabric))
    if tier == "nvlink" and isinstance(fabric, Hierarchy | Torus | FullMesh):
        return replace(fabric, nvlink_bandwidth=fabric.nvlink_bandwidth * share)
    if isinstance(fabric, Hierarchy):
        levels = (
            replace(level, capacity=level.capacity * share) if level.into == tier else level for level in fabric.levels
        )
        return replace(fabric, levels=tuple(levels))
    assert isinstance(fabric, Torus | FullMesh)
    return replace(fabric, link_bandwidth=fabric.link_bandwidth * share)


def on_graph(fault: str) -> bool:
    """Whether a fault takes the graph of every link; slow links are a matter of tiers."""
    return bool(fault) and not fault.startswith("degrade:")


def group_rates(topology: Topology, layout: Layout, pattern: Pattern) -> GroupRates:
    """Max-min fair rates of all groups of a layout; a group that has lost a rank stands still."""
    return rates_of(topology, layout.members(), pattern)


def rates_of(topology: Topology, members: Ints, pattern: Pattern) -> GroupRates:
    """Max-min fair rates of all groups of any ranks; a group that has lost a rank stands still."""
    there = [all(("gpu", rank) in topology.graph for rank in group) for group in members.tolist()]
    loads = iter(group_loads(topology, members[there], pattern))
    groups: list[Loads] = [next(loads) if whole else {} for whole in there]
    rates = fair_shares(topology, groups)
    return GroupRates(tuple(rate if whole else 0.0 for rate, whole in zip(rates, there, strict=True)))


@dataclass(frozen=True)
class _Place:
    fault: str
    fabric: Reduced
    gpus_per_node: int

    def wrong(self, what: str, fix: str) -> SpecError:
        return SpecError.single(f"--fault {self.fault}", "", what, fix)


def _parts(fault: str) -> tuple[str, str]:
    kind, colon, target = fault.partition(":")
    if not colon or not target:
        raise SpecError.single(f"--fault {fault}", "", "is not KIND:TARGET", "write for example nic:node3.rail5")
    if kind not in KINDS:
        raise SpecError.single(f"--fault {fault}", "", f"no kind of fault '{kind}'", did_you_mean(kind, KINDS))
    return kind, target


def _nic(graph: nx.Graph[Vertex], place: _Place, target: str) -> None:
    found = re.fullmatch(r"node(\d+)\.rail(\d+)", target)
    if not found:
        raise place.wrong(f"no NIC '{target}'", "write for example nic:node3.rail5")
    node, rail = (int(number) for number in found.groups())
    rank = node * place.gpus_per_node + rail
    if rail >= place.gpus_per_node or ("nic", rank) not in graph:
        nodes = -(-place.fabric.world // place.gpus_per_node)
        raise place.wrong(f"no NIC '{target}'", f"node0 to node{nodes - 1}, rail0 to rail{place.gpus_per_node - 1}")
    graph.remove_node(("nic", rank))


def _rail(graph: nx.Graph[Vertex], place: _Place, target: str) -> None:
    if not target.isdigit() or int(target) >= place.gpus_per_node:
        raise place.wrong(f"no rail '{target}'", f"0 to {place.gpus_per_node - 1}")
    nics = [("nic", rank) for rank in range(int(target), place.fabric.world, place.gpus_per_node)]
    graph.remove_nodes_from([nic for nic in nics if nic in graph])


def _node(graph: nx.Graph[Vertex], place: _Place, target: str) -> None:
    nodes = -(-place.fabric.world // place.gpus_per_node)
    if not target.isdigit() or int(target) >= nodes:
        raise place.wrong(f"no node '{target}'", f"0 to {nodes - 1}")
    first = int(target) * place.gpus_per_node
    for rank in range(first, first + place.gpus_per_node):
        graph.remove_nodes_from([("gpu", rank), ("nic", rank)])


def _switch(graph: nx.Graph[Vertex], place: _Place, target: str) -> None:
    vertex = _vertex(graph, target)
    if vertex is None or vertex[0] in ("gpu", "nic"):
        names = [_name(graph, one) for one in graph if one[0] not in ("gpu", "nic")]
        raise place.wrong(f"no switch '{target}'", _nearest(target, names))
    graph.remove_node(vertex)


def _link(graph: nx.Graph[Vertex], place: _Place, target: str) -> None:
    for dash in re.finditer("-", target):
        one, other = _vertex(graph, target[: dash.start()]), _vertex(graph, target[dash.end() :])
        if one is not None and other is not None and graph.has_edge(one, other):
            graph.remove_edge(one, other)
            return
    names = [f"{_name(graph, one)}-{_name(graph, other)}" for one, other in graph.edges]
    raise place.wrong(f"no link '{target}'", _nearest(target, names))


def _degrade(graph: nx.Graph[Vertex], place: _Place, target: str) -> None:
    tier, share = _share(place.fault, target, _tiers(place.fabric))
    kinds = _kinds_into(place.fabric, tier)
    for _, _, edge in graph.edges(data=True):
        if edge["kind"] in kinds:
            edge["capacity"] *= share


def _tiers(fabric: Reduced) -> tuple[str, ...]:
    names = (tier.name for tier in fabric.tiers)
    return tuple(dict.fromkeys("torus" if name.startswith("torus-") else name for name in names))


def _kinds_into(fabric: Reduced, tier: str) -> set[str]:
    if tier == "nvlink":
        return {"nvlink"}
    if isinstance(fabric, Hierarchy):
        return {level.name for level in fabric.levels if level.into == tier}
    return {"x-link", "y-link", "z-link", "mesh-link"}


def _share(fault: str, target: str, tiers: Sequence[str]) -> tuple[str, float]:
    tier, _, text = target.partition("=")
    if tier not in tiers:
        raise SpecError.single(f"--fault {fault}", "", f"no tier '{tier}'", did_you_mean(tier, tiers))
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise SpecError.single(
            f"--fault {fault}", "", f"'{text}' is not a share", f"more than 0 and at most 1: {tier}=0.5"
        )
    return tier, share


def _vertex(graph: nx.Graph[Vertex], text: str) -> Vertex | None:
    """Vertex that a text such as ``leaf2`` or ``spine0.3`` names."""
    found = re.fullmatch(r"(.*?)(\d+)(?:\.(\d+))?", text)
    if not found:
        return None
    kind, *numbers = found.groups()
    short = (kind, *(int(number) for number in numbers if number is not None))
    return next((vertex for vertex in (short, (*short, 0)) if vertex in graph), None)


def _name(graph: nx.Graph[Vertex], vertex: Vertex) -> str:
    """What a vertex is called; the only switch of a unit goes by its unit."""
    kind, *numbers = vertex
    if len(numbers) == 2 and (kind, numbers[0], 1) not in graph:
        numbers = numbers[:1]
    return f"{kind}{'.'.join(str(number) for number in numbers)}"


def _nearest(text: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    meant = closest(text, listed)
    return f"did you mean '{meant}'?" if meant else f"for example {listed[0]} or {listed[-1]}"


KINDS: dict[str, Callable[[nx.Graph[Vertex], _Place, str], None]] = {
    "nic": _nic,
    "rail": _rail,
    "switch": _switch,
    "link": _link,
    "node": _node,
    "degrade": _degrade,
}
