"""V-shaped schedules from a repeated building block, with weight gradients in the gaps that it leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from moesim.base.errors import Violation
from moesim.timeline.schedule import Op, Program, Schedule, Slot, needs_chunks, needs_ranks, v_shape

SOURCE = "qi2024-memory"
PERIOD = 6
"""Slots of a rank that one micro-batch takes: F, B and W of two chunks."""


class Offsets(NamedTuple):
    """First slots of a rank: forward down the V and up, backward down and up."""

    forward_low: int
    forward_high: int
    backward_high: int
    backward_low: int


class ControllableMemory(Schedule):
    """A V of two chunks a rank: how far the passes of the building block lie apart sets what is kept.

    Notes
    -----
    The paper leaves open where weight gradients go. Here a rank runs one whenever the next slot of its order cannot
    start, or would keep more than the schedule's most: with equal parts the steps are 0 to 8 % longer than those of the
    authors' generator, the peaks are the same. The order is found with F = B = W = 1 and holds for other durations.

    References
    ----------
    qi2024-memory, section 3
    """

    chunks = 2
    splits = True
    settles = True

    def __init__(self, name: str, offsets: Callable[[int, int], Offsets], most: Callable[[int], int]) -> None:
        self._name, self._offsets, self.most = name, offsets, most

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need several ranks with two chunks each."""
        return [*needs_ranks(self._name, 2, pp, SOURCE), *needs_chunks(self._name, 2, vpp, SOURCE)]

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage, on a V."""
        return v_shape(pp)

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank; there are no pairs that extra warm-up could serve."""
        return filled([self._pattern(pp, rank, micro_batches) for rank in range(pp)], 2 * pp, 2 * self.most(pp))

    def _pattern(self, pp: int, rank: int, micro_batches: int) -> list[Slot]:
        """Forwards and input gradients of a rank in the order of the repeated block."""
        low, high = rank, 2 * pp - 1 - rank
        passes = zip(self._offsets(pp, rank), ((Op.F, low), (Op.F, high), (Op.B, high), (Op.B, low)), strict=True)
        timed = [(slot + PERIOD * i, Slot(*kind, i)) for slot, kind in passes for i in range(micro_batches)]
        return [slot for _, slot in sorted(timed)]


def filled(patterns: Sequence[Sequence[Slot]], num_stages: int, most: int) -> list[list[Slot]]:
    """Programs of the patterns with a weight gradient wherever a rank would wait, or would keep more than `most` chunks.

    Parameters
    ----------
    patterns
        Forwards and input gradients of each rank, in order.
    num_stages
        Stages, S.
    most
        Chunks that a rank may keep until their weight gradients are done.
    """
    queues = [deque(pattern) for pattern in patterns]
    waiting: list[deque[Slot]] = [deque() for _ in patterns]
    held = [0] * len(patterns)
    programs: list[list[Slot]] = [[] for _ in patterns]
    done: set[tuple[Op, int, int]] = set()

    def ready(slot: Slot, rank: int) -> bool:
        op, stage, i, _ = slot
        if op == Op.F:
            return held[rank] < most and (stage == 0 or (Op.F, stage - 1, i) in done)
        return (Op.F, stage, i) in done and (stage == num_stages - 1 or (Op.B, stage + 1, i) in done)

    while any(queues) or any(waiting):
        now: list[Slot] = []
        for rank, queue in enumerate(queues):
            if queue and ready(queue[0], rank):
                slot = queue.popleft()
            elif waiting[rank]:
                slot = waiting[rank].popleft()
            else:
                continue
            if slot.op == Op.B:
                waiting[rank].append(Slot(Op.W, slot.stage, slot.micro_batch))
            held[rank] += (slot.op == Op.F) - (slot.op == Op.W)
            programs[rank].append(slot)
            now.append(slot)
        if not now:
            raise ValueError(f"deadlock: no rank can go on with {most} chunks")
        done.update(slot[:3] for slot in now)
    return programs
