"""Fabrics that are trees once parallel switches are taken together: fat-trees, rails, NVLink domains, dragonflies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from moesim.base.errors import SpecError
from moesim.fabric.layout import MOST_FLOWS, Floats, Ints, Pattern, flows
from moesim.fabric.tiers import LinkLoad, Reduced, Tier


@dataclass(frozen=True)
class Level:
    """Units of one level, each with links up to the level above.

    Attributes
    ----------
    name, into
        What the up-links are called, and the tier they lead into.
    block, lanes
        A unit holds the GPUs of a block of ranks that have the same rank modulo `lanes`. [-]
    capacity
        Of all up-links of a unit, per direction. [B/s]
    links
        Up-links of each switch of a unit. [-]
    latency
        Of an up-link with the switch behind it. [s]
    period
        Ranks after which blocks begin anew, as in a data centre of its own; 0: never. [-]
    """

    name: str
    into: str
    block: int
    lanes: int
    capacity: float
    links: int
    latency: float
    period: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of a full unit. [-]"""
        return min(self.block, self.period or self.block) // self.lanes

    def blocks(self, ranks: Ints) -> Ints:
        """Number of the block that each rank stands in."""
        if not self.period:
            return ranks // self.block
        return ranks // self.period * -(-self.period // self.block) + ranks % self.period // self.block

    def unit(self, ranks: Ints) -> Ints:
        """Number of the unit that each rank belongs to."""
        return self.blocks(ranks) * self.lanes + ranks % self.lanes


@dataclass(frozen=True)
class Hierarchy(Reduced):
    """Levels from the GPU up, beside NVLink domains of ``domain`` GPUs (1: none).

    ``forward``: a message that leaves its domain first crosses NVLink to the GPU that has, in its domain, the place of
    the target. Traffic is spread evenly over the up-links of a unit: equal-cost paths of a fat-tree, adaptive routing
    of a dragonfly.
    """

    world: int
    domain: int
    nvlink_bandwidth: float
    nvlink_latency: float
    levels: tuple[Level, ...] = ()
    top_lanes: int = 1
    forward: bool = False

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """Tiers from the GPU outwards."""
        found = []
        if self.domain > 1:
            found.append(Tier("nvlink", self.domain, self.nvlink_bandwidth, 1.0, 2 * self.nvlink_latency))
        way, bandwidth = 0.0, 0.0
        for index, level in enumerate(self.levels):
            above = self.levels[index + 1] if index + 1 < len(self.levels) else None
            size = min(above.gpus, self.world) if above else self.world // self.top_lanes
            share = level.capacity / min(level.gpus, self.world)
            way += 2 * level.latency
            ratio = bandwidth / share if index else 1.0
            bandwidth = min(bandwidth, share) if index else share
            found.append(Tier(level.into, size, bandwidth, ratio, way))
        return tuple(found)

    @cached_property
    def bisection(self) -> float:
        """Capacity between the first and the second half of the ranks: the least cut of the tree of units. [B/s]

        A vertex of the tree stands on the side where it costs less, so two costs a unit are enough.
        """
        ranks = np.arange(self.world, dtype=np.int64)
        left = ranks < self.world // 2
        cut = 0.0
        if self.domain > 1:
            ours = np.bincount(ranks // self.domain, left)
            all_of_it = np.bincount(ranks // self.domain)
            cut += float(np.minimum(ours, all_of_it - ours).sum()) * self.nvlink_bandwidth
        costs = np.where(np.stack([left, ~left]), 0.0, np.inf)  # of a GPU on the left, on the right
        units = ranks  # a rank of each unit of the level below stands for it
        for index, level in enumerate(self.levels):
            if index == 0:
                _, first, inverse = np.unique(level.unit(units), return_index=True, return_inverse=True)
                costs = np.stack([np.bincount(inverse, side) for side in costs])
                units = units[first]
            costs = np.minimum(costs, costs[::-1] + level.capacity)
            above = self.levels[index + 1].unit(units) if index + 1 < len(self.levels) else units % self.top_lanes
            _, first, inverse = np.unique(above, return_index=True, return_inverse=True)
            costs = np.stack([np.bincount(inverse, side) for side in costs])
            units = units[first]
        return cut + float(costs.min(axis=0).sum()) if self.levels else cut

    @property
    def diameter(self) -> int:
        """Links on the longest of the shortest paths between two GPUs. [-]"""
        if self.world <= self.domain:
            return 2 if self.domain > 1 else 0
        apart = self.top_lanes > 1
        crossed = 0
        for height, level in enumerate(self.levels, 1):
            lanes = level.lanes if not apart else 1
            if self.world > min(level.block, level.period or level.block) or (lanes > 1 and height > 1):
                crossed = height
        return 2 * (crossed + 1) + (2 if apart and self.domain > 1 else 0)

    def waypoint(self, source: Ints, target: Ints) -> Ints:
        """GPU at which each message enters the network; the source itself unless it is forwarded."""
        if not self.forward:
            return source
        via = source // self.domain * self.domain + target % self.domain
        leaves = (source // self.domain != target // self.domain) & (via < self.world)
        return np.where(leaves, via, source)

    @property
    def link_latencies(self) -> dict[str, float]:
        """Latency of an up-link of each level with the switch behind it. [s]"""
        return {level.name: level.latency for level in self.levels}

    def link_loads(self, members: Ints, pattern: Pattern) -> dict[str, LinkLoad]:
        """Loads by kind of link, where the groups of `members` run a pattern at the same time."""
        if pattern == "all-to-all" and not (self.forward and self.world % self.domain):
            return _AllToAll(self, members).loads()
        return self._of_flows(members, pattern)

    def _of_flows(self, members: Ints, pattern: Pattern) -> dict[str, LinkLoad]:
        if pattern == "all-to-all" and members.size * members.shape[1] > MOST_FLOWS:
            what = f"the last NVLink domain is partly filled: {self.world} GPUs in domains of {self.domain}"
            raise SpecError.single("fabric", "num_gpus", what, f"a multiple of {self.domain} GPUs")
        found = flows(pattern, members, self.domain)
        source, target, weight = found.source, found.target, found.weight
        entry = self.waypoint(source, target)
        near = source // self.domain == target // self.domain
        loads: dict[str, LinkLoad] = {}
        if self.domain > 1:
            hop = near | (entry != source)
            end = np.where(near, target, entry)
            up, down = _sums(source[hop], weight[hop]), _sums(end[hop], weight[hop])
            loads["nvlink"] = _load("nvlink", self.nvlink_bandwidth, up, down)
            entry, target, weight = entry[~near], target[~near], weight[~near]
        for level in self.levels:
            ours, theirs = level.unit(entry), level.unit(target)
            out = ours != theirs
            up, down = _sums(ours[out], weight[out]), _sums(theirs[out], weight[out])
            loads[level.name] = _load(level.into, level.capacity, up, down)
        return loads


def _sums(keys: Ints, weights: Floats) -> Floats:
    """Sum of the weights of each key, keys renumbered."""
    _, inverse = np.unique(keys, return_inverse=True)
    return np.bincount(inverse, weights).astype(np.float64)


def _load(tier: str, capacity: float, up: Floats, down: Floats) -> LinkLoad:
    most = max((float(side.max()) for side in (up, down) if len(side)), default=0.0)
    return LinkLoad(tier, capacity, most, float(up.sum() + down.sum()))


class _AllToAll:
    """Loads of uniform all-to-alls by counting members, without a list of messages."""

    def __init__(self, fabric: Hierarchy, members: Ints) -> None:
        self.fabric = fabric
        self.size = members.shape[1]
        self.ranks = members.ravel()
        self.group = np.repeat(np.arange(len(members), dtype=np.int64), self.size)
        self.home = self.ranks // fabric.domain
        self.housed = self._count(self.home)

    def loads(self) -> dict[str, LinkLoad]:
        fabric, share = self.fabric, 1.0 / max(1, self.size - 1)
        loads: dict[str, LinkLoad] = {}
        if fabric.domain > 1:
            up, down = self._domain()
            loads["nvlink"] = _load("nvlink", fabric.nvlink_bandwidth, up * share, down * share)
        for level in fabric.levels:
            up, down = self._forwarded(level) if fabric.forward and level.lanes > 1 else self._direct(level)
            loads[level.name] = _load(level.into, level.capacity, up * share, down * share)
        return loads

    def _count(self, key: Ints) -> Floats:
        """For each member, members of its group that share its key."""
        span = int(key.max()) + 1
        _, inverse, counts = np.unique(self.group * span + key, return_inverse=True, return_counts=True)
        shared: Floats = counts[inverse].astype(np.float64)
        return shared

    def _direct(self, level: Level) -> tuple[Floats, Floats]:
        """Messages that leave a unit, and as many that enter it; those inside a domain take NVLink."""
        unit = level.unit(self.ranks)
        span = int(unit.max()) + 1
        both = self._count(self.home * span + unit)
        out = _sums(unit, self.size - self._count(unit) - self.housed + both)
        return out, out

    def _forwarded(self, level: Level) -> tuple[Floats, Floats]:
        """The same where messages enter the network on the lane of their target."""
        block, lane = level.blocks(self.ranks), self.ranks % level.lanes
        in_block = self._count(block)
        key, crossing = self._cross(block, lane, level.lanes)
        actual = level.unit(self.ranks)  # a member for every lane that its own block holds
        total = np.concatenate([crossing, -in_block])
        out = _sums(np.concatenate([key, actual]), total)
        return out, _sums(actual, self.size - in_block)

    def _cross(self, block: Ints, lane: Ints, lanes: int) -> tuple[Ints, Floats]:
        """For each group, block and lane that it uses: members in the block times members on the lane."""
        span = int(block.max()) + 1
        blocks, per_block = np.unique(self.group * span + block, return_counts=True)
        lane_keys, per_lane = np.unique(self.group * lanes + lane, return_counts=True)
        lane_group = lane_keys // lanes
        first = np.searchsorted(lane_group, np.arange(int(self.group.max()) + 2))
        owner = blocks // span
        reps = (first[owner + 1] - first[owner]).astype(np.int64)
        start = np.repeat(first[owner], reps)
        within = np.arange(len(start)) - np.repeat(np.cumsum(reps) - reps, reps)
        chosen = start + within
        key = np.repeat(blocks % span, reps) * lanes + lane_keys[chosen] % lanes
        return key, np.repeat(per_block, reps).astype(np.float64) * per_lane[chosen]

    def _domain(self) -> tuple[Floats, Floats]:
        """Messages from a GPU to the switch of its domain, and from the switch to a GPU."""
        near = self.housed - 1
        if not self.fabric.forward:
            return near, near
        place = self.ranks % self.fabric.domain
        alike = self._count(place)  # members of the group at the same place of their domain, itself included
        up = near + (self.size - self.housed) - (alike - 1)
        key, crossing = self._cross(self.home, place, self.fabric.domain)
        own = -(self.housed + alike - 1) + near  # a member forwards nothing of its own, and receives from its domain
        down = _sums(np.concatenate([key, self.ranks]), np.concatenate([crossing, own]))
        return _sums(self.ranks, up), down
