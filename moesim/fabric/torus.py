"""Tori and meshes of nodes, routed dimension by dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from moesim.base.errors import SpecError
from moesim.fabric.ends import end_load
from moesim.fabric.layout import MOST_FLOWS, Floats, Flows, Ints, Pattern, flows
from moesim.fabric.tiers import LinkLoad, Reduced, Tier


@dataclass(frozen=True)
class Torus(Reduced):
    """Nodes at the points of a grid, the first side the innermost; ring neighbours joined by one link.

    A message goes along the first dimension, then the second, ..., the shorter way around; a tie is split. A side of
    two has a single link between its nodes.

    Attributes
    ----------
    link_bandwidth
        Of a link between neighbours, per direction. [B/s]
    """

    world: int
    gpus_per_node: int
    domain: int
    sides: tuple[int, ...]
    wrap: bool
    nvlink_bandwidth: float
    nvlink_latency: float
    nic_bandwidth: float
    link_bandwidth: float
    latency: float

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The NVLink domain, then one tier a dimension: what each GPU has of its links in a uniform all-to-all."""
        found = []
        if self.domain > 1:
            found.append(Tier("nvlink", self.domain, self.nvlink_bandwidth, 1.0, 2 * self.nvlink_latency))
        size, way = self.gpus_per_node, 2 * self.latency
        members = np.arange(self.world, dtype=np.int64)[None]
        loads = self.link_loads(members, "all-to-all")
        for index, side in enumerate(self.sides):
            if side == 1:
                continue
            size *= side
            way += self.latency * (side // 2 if self.wrap else side - 1)
            bandwidth = self.link_bandwidth / loads[_link(index)].most
            found.append(Tier(_tier(index), size, bandwidth, self.nic_bandwidth / bandwidth, way))
        return tuple(found)

    @property
    def bisection(self) -> float:
        """Capacity between two halves of the nodes, each way: the least over the orders of the sides. [B/s]

        An odd side leaves a plane in the middle, which is halved in turn.
        """
        if math.prod(self.sides) == 1:
            return self.world // 2 * self.nvlink_bandwidth
        return min(_cut(order, self.wrap) for order in permutations(self.sides)) * self.link_bandwidth

    @property
    def diameter(self) -> int:
        """Links on the longest of the shortest paths between two GPUs; two on either end lead to the grid. [-]"""
        across = sum(side // 2 if self.wrap else side - 1 for side in self.sides)
        return across + 4 if across else 2

    def halves(self) -> list[frozenset[int]]:
        """The first half of the nodes in every order of the dimensions; of the GPUs of a single node."""
        if math.prod(self.sides) == 1:
            return super().halves()
        nodes = np.arange(math.prod(self.sides), dtype=np.int64)
        places = self.coordinates(nodes)
        found = []
        for order in permutations(places):
            first = nodes[np.lexsort(order)][: len(nodes) // 2]
            found.append(
                frozenset((first[:, None] * self.gpus_per_node + np.arange(self.gpus_per_node)).ravel().tolist())
            )
        return found

    def coordinates(self, nodes: Ints) -> list[Ints]:
        """Place of nodes along each dimension."""
        found = []
        for side in self.sides:
            found.append(nodes % side)
            nodes = nodes // side
        return found

    def link_loads(self, members: Ints, pattern: Pattern) -> dict[str, LinkLoad]:
        """Loads by kind of link, where the groups of `members` run a pattern at the same time."""
        if pattern == "all-to-all":
            fit = self.fit(members)
            if fit is not None:
                return self._by_symmetry(members, fit)
            if members.size * members.shape[1] > MOST_FLOWS:
                what = f"a group of {members.shape[1]} ranks does not fit the sides {self.sides} of the torus"
                raise SpecError.single("group", "size", what, "size and stride that divide the sides in turn")
        return self._routed(flows(pattern, members, self.domain))

    def _ends(self, found: Flows) -> tuple[dict[str, LinkLoad], Ints, Ints, Floats]:
        """Loads of NVLink and NICs, and the messages that enter the grid, between nodes."""
        loads: dict[str, LinkLoad] = {}
        near = found.source // self.domain == found.target // self.domain
        if self.domain > 1:
            loads["nvlink"] = end_load("nvlink", self.nvlink_bandwidth, found, near, self.world)
        loads["nic"] = end_load("nic", self.nic_bandwidth, found, ~near, self.world)
        source, target = found.source[~near] // self.gpus_per_node, found.target[~near] // self.gpus_per_node
        return loads, source, target, found.weight[~near]

    def _routed(self, found: Flows) -> dict[str, LinkLoad]:
        loads, source, target, weight = self._ends(found)
        start, end = self.coordinates(source), self.coordinates(target)
        for index, side in enumerate(self.sides):
            if side == 1:
                continue
            line = np.zeros(len(source), dtype=np.int64)
            for other, length in enumerate(self.sides):
                if other != index:
                    line = line * length + (end[other] if other < index else start[other])
            lines = math.prod(self.sides) // side
            both = line_loads(side, self.wrap, (line, start[index], end[index], weight), lines)
            loads[_link(index)] = self._grid(index, float(both.max()), float(both.sum()))
        return loads

    @property
    def link_latencies(self) -> dict[str, float]:
        """Latency of each kind of link of the network; the NICs on both ends count one each. [s]"""
        return {"nic": self.latency} | {_link(index): self.latency for index in range(len(self.sides))}

    def _grid(self, index: int, most: float, total: float) -> LinkLoad:
        return LinkLoad(_tier(index), self.link_bandwidth, most, total, 1)

    def fit(self, members: Ints) -> tuple[int, list[tuple[int, int]]] | None:
        """Members in a node, and spacing and count of a group along each side; None where it does not fit."""
        size = members.shape[1]
        stride = int(members[0, 1] - members[0, 0]) if size > 1 else 1
        per_node = self.gpus_per_node
        whole = len(members) * size == self.world and bool((np.diff(members[0]) == stride).all())
        if size == 1 or not whole or self.domain not in (1, per_node) or self.domain == 1 < per_node:
            return None
        inside = 1
        if stride % per_node:
            inside = min(size, per_node // stride)
            if per_node % stride or per_node % (inside * stride) or size % inside:
                return None
        along, spacing, left = [], max(1, stride // per_node), size // inside
        for side in self.sides:
            if spacing >= side:
                if spacing % side:
                    return None
                along.append((1, 1))
                spacing //= side
                continue
            room, uneven = divmod(side, spacing)
            count = min(left, room)
            if uneven or left % count or room % count:
                return None
            along.append((spacing, count))
            left //= count
            spacing = 1
        return (inside, along) if left == 1 else None

    def _by_symmetry(self, members: Ints, fit: tuple[int, list[tuple[int, int]]]) -> dict[str, LinkLoad]:
        """Every group is a grid of nodes, so the load of a dimension is that of one line times a count."""
        inside, along = fit
        size = members.shape[1]
        loads: dict[str, LinkLoad] = {}
        near = (inside - 1) / (size - 1)
        if self.domain > 1:
            loads["nvlink"] = LinkLoad("nvlink", self.nvlink_bandwidth, near, 2 * near * self.world)
        out = (size - inside) / (size - 1)
        loads["nic"] = LinkLoad("nic", self.nic_bandwidth, out, 2 * out * self.world)
        pair = self.gpus_per_node * inside / (size - 1)  # bytes between two nodes of a group, all its members
        for index, (side, (spacing, count)) in enumerate(zip(self.sides, along, strict=True)):
            if side == 1:
                continue
            line = self._line(side, spacing, count) * (pair * size / inside / count)
            lines = math.prod(self.sides) // side
            loads[_link(index)] = self._grid(index, float(line.max()), float(line.sum()) * lines)
        return loads

    def _line(self, side: int, spacing: int, count: int) -> Floats:
        """Loads of one line where places ``spacing`` apart, ``count`` in a group, all send one byte to each other."""
        place = np.arange(side, dtype=np.int64)
        base = place // (count * spacing) * (count * spacing) + place % spacing
        offsets = np.arange(count, dtype=np.int64) * spacing
        start = np.repeat(place, count)
        end = (base[:, None] + offsets).ravel()
        apart = start != end
        start, end = start[apart], end[apart]
        return line_loads(side, self.wrap, (np.zeros_like(start), start, end, np.ones(len(start))), 1)


def line_loads(side: int, wrap: bool, messages: tuple[Ints, Ints, Ints, Floats], lines: int) -> Floats:
    """Bytes on each link of parallel rings or lines of nodes, by direction, line and link.

    Parameters
    ----------
    side, lines
        Nodes of a line; lines. [-]
    wrap
        The ends are joined, where there are more than two.
    messages
        Line, first and last place, and bytes of each.
    """
    line, start, end, weight = messages
    steps = (end - start) % side if wrap and side > 2 else end - start
    ring = wrap and side > 2
    tie = np.where(2 * steps == side, 0.5, 1.0) if ring else 1.0
    found = []
    for sign in (1, -1):
        length = (steps * sign) % side if ring else steps * sign
        used = (length > 0) & ((2 * length <= side) | (not ring))
        share = (weight * tie)[used]
        first = start[used] if sign == 1 else start[used] - length[used]
        first = first % side if ring else first
        change = np.zeros((lines, 2 * side + 1))
        np.add.at(change, (line[used], first), share)
        np.add.at(change, (line[used], first + length[used]), -share)
        carried = np.cumsum(change, axis=1)[:, :-1]
        found.append(carried[:, :side] + carried[:, side:])
    return np.stack(found)


def _cut(sides: tuple[int, ...], wrap: bool) -> int:
    """Links cut by halving along the first side, and the plane in the middle of an odd one along the next."""
    if not sides:
        return 0
    side, rest = sides[0], sides[1:]
    if side == 1:
        return _cut(rest, wrap)
    across = (2 if wrap and side > 2 else 1) * math.prod(rest)
    return across + (_cut(rest, wrap) if side % 2 else 0)


def _tier(index: int) -> str:
    return f"torus-{'xyzw'[index]}"


def _link(index: int) -> str:
    return f"{'xyzw'[index]}-link"
