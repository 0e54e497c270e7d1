"""Several ranks beside each other: collectives that belong together, waiting apart from transfer, clocks, stragglers.

A collective moves data once the last rank has arrived; what the others spent in it before is waiting. Ranks leave it
together, so its ends tell how far the clocks of hosts are apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from moesim.traces.collectives import Collective, collectives
from moesim.traces.summary import SECOND, Work

SAME_CLOCK = 20_000
"""Offset of the ends up to which ranks share a clock. [ns]"""
STEADY = 200_000
"""Spread of the ends around an offset up to which it is one of clocks. [ns]"""


@dataclass(frozen=True)
class Match:
    """One collective on all the ranks that took part. Times in s.

    Attributes
    ----------
    operation, index
        What, and which one of its kind.
    members
        The kernel of each rank.
    start_spread_s, end_spread_s
        From the first to the last arrival, and to leave.
    transfer_s
        From the last arrival to the first end.
    last
        Rank that arrived last.
    complete
        Whether all ranks of the group are here; else another one may have arrived later, and waiting is a lower bound.
    """

    operation: str
    index: int
    members: Mapping[int, Collective]
    start_spread_s: float
    end_spread_s: float
    transfer_s: float
    last: int
    complete: bool

    @property
    def begin_ns(self) -> int:
        """When the last rank arrived. [ns]"""
        return max(one.start_ns for one in self.members.values())

    def waiting_s(self, rank: int) -> float:
        """How long a rank waited for the last one. [s]"""
        return (self.begin_ns - self.members[rank].start_ns) / SECOND

    def moved_s(self, rank: int) -> float:
        """How long the transfer took on a rank: from the last arrival to its own end. [s]"""
        return (self.members[rank].end_ns - self.begin_ns) / SECOND

    @property
    def size(self) -> float | None:
        """Size as nccl-tests count it. [B]"""
        return next((one.size for one in self.members.values() if one.size is not None), None)


@dataclass(frozen=True)
class RankTime:
    """What a rank spent in matched collectives. Times in s.

    Attributes
    ----------
    waiting_s, transfer_s
        Waiting for the last rank, and moving data.
    arrived_last
        Collectives in which it was the last.
    clock_offset_s
        How far its clock is ahead of the others; taken out of its times where it is more than 20 us.
    """

    rank: int
    waiting_s: float
    transfer_s: float
    arrived_last: int
    clock_offset_s: float


@dataclass(frozen=True)
class Across:
    """Several ranks beside each other.

    ``rejected`` counts collectives that could not be matched, by reason; ``owners``: file and GPU of each rank;
    ``moved``: what was taken off the clock of each rank. [ns]
    """

    matches: tuple[Match, ...]
    ranks: tuple[RankTime, ...]
    rejected: Mapping[str, int]
    owners: Mapping[int, tuple[int, int]]
    moved: Mapping[int, int]


def across(works: Sequence[Work]) -> Across:
    """Match the collectives of several ranks: files of one rank each, or GPUs of a file."""
    owners = by_rank(works)
    every = [collectives(work) for work in works]
    listed = {rank: [one for one in every[file] if one.device == device] for rank, (file, device) in owners.items()}
    groups = _grouped(listed)
    offsets = _offsets(groups, list(listed))
    rejected: dict[str, int] = defaultdict(int)
    matches = []
    for (operation, index, _), members in groups.items():
        if len(members) < 2:
            rejected["on one rank only"] += 1
            continue
        moved = {rank: _moved(one, offsets[rank]) for rank, one in members.items()}
        starts, ends = ([getattr(one, name) for one in moved.values()] for name in ("start_ns", "end_ns"))
        if max(starts) > min(ends):
            rejected["never at the same time: not the same collective"] += 1
            continue
        last = max(moved, key=lambda rank: moved[rank].start_ns)
        apart = [(max(part) - min(part)) / SECOND for part in (starts, ends)]
        transfer = (min(ends) - max(starts)) / SECOND
        complete = _expected(members) in (0, len(members))
        matches.append(Match(operation, index, moved, apart[0], apart[1], transfer, last, complete))
    matches.sort(key=lambda one: min(member.start_ns for member in one.members.values()))
    times = tuple(_rank_time(rank, matches, offsets[rank]) for rank in listed)
    moved_by = {rank: offset if abs(offset) > SAME_CLOCK else 0 for rank, offset in offsets.items()}
    return Across(tuple(matches), times, dict(rejected), owners, moved_by)


def by_rank(works: Sequence[Work]) -> dict[int, tuple[int, int]]:
    """File and GPU of each rank; files without a rank count by their place, GPUs of a file with several each alone."""
    found: dict[int, tuple[int, int]] = {}
    many = any(len(work.table.devices) > 1 for work in works)
    for place, work in enumerate(works):
        for device in work.table.devices:
            rank = work.table.rank if work.table.rank is not None and not many else None
            if rank is None or rank in found:
                rank = len(found) if many else place
                while rank in found:
                    rank += 1
            found[rank] = (place, device)
    return found


def _grouped(listed: Mapping[int, list[Collective]]) -> dict[Any, dict[int, Collective]]:
    """Kernels that belong together: by number in their group where told, else the n-th of its kind."""
    groups: dict[Any, dict[int, Collective]] = {}
    for rank, every in listed.items():
        counts: dict[Any, int] = defaultdict(int)
        for one in every:
            kind = one.kind if one.told_by in ("name", "annotation") else one.operation or one.kind
            line = (one.group, kind)
            index = one.sequence if one.sequence >= 0 else counts[line]
            counts[line] += 1
            groups.setdefault((kind, index, one.group), {})[rank] = one
    return groups


def _expected(members: Mapping[int, Collective]) -> int:
    """Ranks of the group as the files tell, 0 where they do not."""
    return max((one.group_size or 0 for one in members.values()), default=0)


def _offsets(groups: Mapping[Any, Mapping[int, Collective]], ranks: Sequence[int]) -> dict[int, int]:
    """How far the clock of each rank is ahead: the middle difference of its ends to those of the others. [ns]"""
    apart: dict[int, list[float]] = {rank: [] for rank in ranks}
    for members in groups.values():
        if len(members) > 1:
            middle = float(np.median([one.end_ns for one in members.values()]))
            for rank, one in members.items():
                apart[rank].append(one.end_ns - middle)
    found = {}
    for rank, each in apart.items():
        offset = float(np.median(each)) if each else 0.0
        steady = bool(each) and float(np.median(np.abs(np.array(each) - offset))) < STEADY
        found[rank] = round(offset) if steady and len(each) > 2 else 0
    return found


def _moved(one: Collective, offset: int) -> Collective:
    if abs(offset) <= SAME_CLOCK:
        return one
    return replace(one, start_ns=one.start_ns - offset, end_ns=one.end_ns - offset)


def _rank_time(rank: int, matches: Sequence[Match], offset: int) -> RankTime:
    own = [match for match in matches if rank in match.members]
    waiting, moved = sum(match.waiting_s(rank) for match in own), sum(match.moved_s(rank) for match in own)
    return RankTime(rank, waiting, moved, sum(match.last == rank for match in own), offset / SECOND)
