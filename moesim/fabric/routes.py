"""Link loads on the graph: every message routed over every path it may take."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise

from moesim.base.errors import SpecError
from moesim.fabric.graph import Topology, Vertex
from moesim.fabric.hierarchy import Hierarchy
from moesim.fabric.layout import Floats, Flows, Ints, Pattern, flows
from moesim.fabric.tiers import LinkLoad
from moesim.fabric.torus import Torus

Link = tuple[Vertex, Vertex]
"""A direction of a link."""
Loads = dict[Link, float]


def group_loads(topology: Topology, members: Ints, pattern: Pattern) -> list[Loads]:
    """Bytes that each group puts on each direction of each link, for each byte that a rank has to send."""
    router = _Router(topology)
    return [router.loads(flows(pattern, group[None], router.domain)) for group in members]


def summed(loads: list[Loads]) -> Loads:
    """Loads of all groups together."""
    total: Loads = {}
    for one in loads:
        for link, load in one.items():
            total[link] = total.get(link, 0.0) + load
    return total


def by_kind(topology: Topology, loads: Mapping[Link, float]) -> dict[str, LinkLoad]:
    """Loads as the reduced fabric states them: the most and the sum of each kind of link."""
    found: dict[str, LinkLoad] = {}
    for link, load in loads.items():
        edge = topology.graph.edges[link]
        kind, capacity = edge["kind"], edge["capacity"]
        old = found.get(kind, LinkLoad(kind, capacity, 0.0, 0.0))
        most, limit = max((old.most, old.capacity), (load, capacity), key=lambda pair: pair[0] / pair[1])
        found[kind] = LinkLoad(kind, limit, most, old.total + load)
    return found


def equal_cost_paths(topology: Topology, source: Vertex, target: Vertex) -> list[list[Vertex]]:
    """Shortest paths between two vertices over the network, NVLink left out."""
    router = _Router(topology)
    away = router.distances(target, network=True)
    if source not in away:
        return []
    paths = [[source]]
    while paths[0][-1] != target:
        paths = [[*path, step] for path in paths for step in router.steps(path[-1], away, network=True)]
    return paths


class _Router:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.fabric = topology.fabric
        self.domain: int = getattr(topology.fabric, "domain", 1)
        self.neighbours = {vertex: list(topology.graph[vertex]) for vertex in topology.graph}
        self.network = {
            vertex: [other for other in others if other[0] != "nvswitch"] for vertex, others in self.neighbours.items()
        }
        self.parts = self._parts()
        self._away: dict[tuple[Vertex, bool], dict[Vertex, int]] = {}

    def _parts(self) -> dict[Vertex, int]:
        """Number of the part of the network that each vertex is in; NVLink does not count."""
        found: dict[Vertex, int] = {}
        for number, vertex in enumerate(self.network):
            if vertex not in found and vertex[0] != "nvswitch":
                found |= dict.fromkeys(self._search(vertex, self.network), number)
        return found

    def distances(self, target: Vertex, network: bool) -> dict[Vertex, int]:
        """Links from each vertex to the target; only those that reach it."""
        key = (target, network)
        if key not in self._away:
            self._away = {key: self._search(target, self.network if network else self.neighbours)}
        return self._away[key]

    def _search(self, target: Vertex, neighbours: Mapping[Vertex, list[Vertex]]) -> dict[Vertex, int]:
        found, queue = {target: 0}, deque([target])
        while queue:
            vertex = queue.popleft()
            for other in neighbours.get(vertex, ()):
                if other not in found:
                    found[other] = found[vertex] + 1
                    queue.append(other)
        return found

    def steps(self, vertex: Vertex, away: Mapping[Vertex, int], network: bool) -> list[Vertex]:
        """Next vertices on shortest paths."""
        neighbours = self.network if network else self.neighbours
        return [other for other in neighbours[vertex] if away.get(other, -2) == away[vertex] - 1]

    def loads(self, found: Flows) -> Loads:
        """Loads of messages; those to one target are spread in one go."""
        loads: Loads = {}
        arriving: dict[int, dict[Vertex, float]] = {}
        entry = self.fabric.waypoint(found.source, found.target) if isinstance(self.fabric, Hierarchy) else found.source
        for source, via, target, weight in _rows(found, entry):
            near = source // self.domain == target // self.domain
            if near and self._over_nvlink(loads, source, target, weight):
                continue
            if via != source and not self._enters(via, target):
                via = source
            if via != source and not self._over_nvlink(loads, source, via, weight):
                via = source
            if isinstance(self.fabric, Torus) and self._along_dimensions(loads, via, target, weight):
                continue
            senders = arriving.setdefault(target, {})
            senders["gpu", via] = senders.get(("gpu", via), 0.0) + weight
        for target, senders in arriving.items():
            self._spread(loads, senders, ("gpu", target))
        return loads

    def _enters(self, via: int, target: int) -> bool:
        part = self.parts.get(("gpu", target))
        return part is not None and self.parts.get(("gpu", via)) == part

    def _over_nvlink(self, loads: Loads, source: int, target: int, weight: float) -> bool:
        path: list[Vertex] = [("gpu", source), ("nvswitch", source // self.domain), ("gpu", target)]
        return self._walk(loads, [path], weight)

    def _walk(self, loads: Loads, paths: list[list[Vertex]], weight: float) -> bool:
        """Share a message out over paths, if all of them are there."""
        links = [list(pairwise(path)) for path in paths]
        if not all(self.topology.graph.has_edge(*link) for path in links for link in path):
            return False
        for path in links:
            for link in path:
                loads[link] = loads.get(link, 0.0) + weight / len(paths)
        return True

    def _spread(self, loads: Loads, senders: Mapping[Vertex, float], target: Vertex) -> None:
        """Send what flows to a target down its shortest paths, split evenly at every vertex."""
        away = self.distances(target, network=True)
        inside = {sender: weight for sender, weight in senders.items() if sender in away}
        self._descend(loads, inside, away, network=True)
        outside = {sender: weight for sender, weight in senders.items() if sender not in away}
        if not outside:
            return
        away = self.distances(target, network=False)  # a way around, NVLink and other NICs included
        lost = next((sender for sender in outside if sender not in away), None)
        if lost is not None:
            what = f"GPU {lost[1]} has no path to GPU {target[1]}"
            raise SpecError.single("fabric", "", what, "leave out the GPUs that are cut off, or repair a link")
        self._descend(loads, outside, away, network=False)

    def _descend(
        self, loads: Loads, senders: Mapping[Vertex, float], away: Mapping[Vertex, int], network: bool
    ) -> None:
        if not senders:
            return
        flow = dict(senders)
        layers: dict[int, list[Vertex]] = {}
        for vertex in flow:
            layers.setdefault(away[vertex], []).append(vertex)
        for distance in range(max(layers), 0, -1):
            for vertex in layers.get(distance, ()):
                onward = self.steps(vertex, away, network)
                share = flow[vertex] / len(onward)
                for other in onward:
                    loads[vertex, other] = loads.get((vertex, other), 0.0) + share
                    if other not in flow:
                        layers.setdefault(distance - 1, []).append(other)
                    flow[other] = flow.get(other, 0.0) + share

    def _along_dimensions(self, loads: Loads, source: int, target: int, weight: float) -> bool:
        """Route over a torus, one dimension after the other, the shorter way around; a tie is split."""
        fabric = self.fabric
        assert isinstance(fabric, Torus)
        per_node = fabric.gpus_per_node
        paths: list[list[int]] = [[source // per_node]]
        step = 1
        for side in fabric.sides:
            end = target // per_node // step % side
            paths = [path + leg for path in paths for leg in _legs(path[-1], end, step, side, fabric.wrap)]
            step *= side
        before: list[Vertex] = [("gpu", source), ("nic", source)]
        after: list[Vertex] = [("nic", target), ("gpu", target)]
        return self._walk(loads, [[*before, *(("node", node) for node in path), *after] for path in paths], weight)


def _rows(found: Flows, entry: Ints) -> Iterator[tuple[int, int, int, float]]:
    weights: Floats = found.weight
    return zip(found.source.tolist(), entry.tolist(), found.target.tolist(), weights.tolist(), strict=True)


def _legs(node: int, end: int, step: int, side: int, wrap: bool) -> list[list[int]]:
    """Nodes on the way to a place along one dimension; both ways where they are equally long."""
    place = node // step % side
    if place == end:
        return [[]]
    ways = [(1, (end - place) % side), (-1, (place - end) % side)]
    if not wrap or side == 2:
        ways = [(1, end - place)] if end > place else [(-1, place - end)]
    least = min(length for _, length in ways)
    legs = []
    for sign, length in ways:
        if length == least:
            places = [(place + sign * hop) % side for hop in range(1, length + 1)]
            legs.append([node + (at - place) * step for at in places])
    return legs
