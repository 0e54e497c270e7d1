"""The building block of 1F1B-V, repeated for every micro-batch and moved to the front slot by slot."""

from __future__ import annotations

import numpy as np

from moesim.timeline.graph import IntArray

PERIOD = 6
"""Slots of a rank that one micro-batch takes: two forwards, two backwards of two slots."""
FORWARD, FIRST_HALF, SECOND_HALF = range(3)
CHANGE = (1, 0, -1)
"""What a forward and the halves of a backward change in the chunks that a rank keeps."""


def building_block(pp: int) -> tuple[IntArray, IntArray]:
    """First slots of the forward and of the backward of each stage, for the first micro-batch. (2p,)

    Forwards go down the V and up again one slot apart. Backwards follow two slots apart, with three slots of pause
    after every third one, so that blocks a period apart never meet.
    """
    now = PERIOD
    forward, backward = np.zeros(2 * pp, np.int64), np.zeros(2 * pp, np.int64)
    for stage in range(2 * pp):
        now += 1
        forward[stage] = now
    now += 1 + 3 * (pp % 3 == 0)
    group = (3 - (pp + 2) % 3) % 3
    for stage in range(2 * pp - 1, -1, -1):
        backward[stage] = now
        now += 2
        group += 1
        if group == 3:
            group = 0
            now += 3
    return forward, backward


class Squeeze:
    """The table of slots, rank by rank, whose entries move to earlier slots; `entries` are in their order of slots.

    Parameters
    ----------
    pp, micro_batches
        Pipeline ranks, micro-batches of a step.
    ahead
        Chunks that a rank may keep above the most of the raw table, in order to run forwards earlier.
    """

    def __init__(self, pp: int, micro_batches: int, ahead: int) -> None:
        self._last = 2 * pp - 1
        rank_of = [min(stage, self._last - stage) for stage in range(2 * pp)]
        forward, backward = building_block(pp)
        raw: list[tuple[int, int, int, int, int]] = []
        for stage, rank in enumerate(rank_of):
            first = int(forward[stage]), int(backward[stage]), int(backward[stage]) + 1
            raw += [
                (slot + PERIOD * i, rank, kind, stage, i)
                for kind, slot in enumerate(first)
                for i in range(micro_batches)
            ]
        raw.sort()
        size = raw[-1][0] + 2
        self._taken = [bytearray(size) for _ in range(pp)]
        self._held = [[0] * size for _ in range(pp)]
        change = np.zeros((pp, size), dtype=np.int64)
        for slot, rank, kind, _, _ in raw:
            self._taken[rank][slot] = 1
            change[rank, slot] += CHANGE[kind]
        held = np.cumsum(change, axis=1)
        self._held = held.tolist()
        self._most = int(held.max()) + ahead
        # one place more than there are stages and micro-batches: index -1 stands for what is not there, slot 0
        self._finish = [[[0] * (micro_batches + 1) for _ in range(2 * pp + 1)] for _ in range(3)]
        self.entries = sorted(self._move(*entry) for entry in raw)

    def _move(self, slot: int, rank: int, kind: int, stage: int, i: int) -> tuple[int, int, int, int, int]:
        """Move an entry to the earliest slot that it may take; its own one counts as taken."""
        finish, taken, held = self._finish, self._taken[rank], self._held[rank]
        if kind == FORWARD:
            before = finish[FORWARD][stage - 1][i]
        elif kind == SECOND_HALF:
            before = finish[FIRST_HALF][stage][i]
        else:
            before = finish[FORWARD][stage][i] if stage == self._last else finish[SECOND_HALF][stage + 1][i]
        earliest = 1 + max(finish[kind][stage][i - 1], before)
        if kind == FIRST_HALF:
            target = taken.find(b"\0\0", earliest, slot + 1)
        else:
            start = slot if kind == FORWARD else earliest
            while start > earliest and held[start - 1] < self._most:
                start -= 1
            target = taken.find(0, start, slot)
        if target < 0:
            target = slot
        taken[slot], taken[target] = 0, 1
        finish[kind][stage][i] = target
        if change := CHANGE[kind]:
            for between in range(target, slot):
                held[between] += change
        return target, rank, kind, stage, i
