"""ZB-V: split backwards on a V of two chunks a rank."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.base.errors import Violation
from moesim.timeline.schedule import Op, Program, Schedule, Slot, needs_chunks, needs_ranks, v_shape
from moesim.timeline.schedules import schedules
from moesim.timeline.zero_bubble import Counting

SOURCE = "qi2024-memory"


class ZeroBubbleV(Schedule):
    """Rank r holds the stages r and 2p - 1 - r; forward, input gradient and weight gradient follow each other.

    With equal parts a rank idles the p - 1 slots of the start only, which a skewed optimizer step takes away, and keeps
    2p chunks, the memory of 1F1B.

    Notes
    -----
    Programs are those of max(m, 2p - 1) micro-batches without the ones beyond m.

    References
    ----------
    qi2024-memory, section 3; pytorch-pipelining, ``ScheduleZBVZeroBubble``
    """

    chunks = 2
    splits = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need several ranks with two chunks each."""
        return [*needs_ranks("zb-v", 2, pp, SOURCE), *needs_chunks("zb-v", 2, vpp, SOURCE)]

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage, on a V."""
        return v_shape(pp)

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank; there are no pairs that extra warm-up could serve."""
        return [
            [slot for slot in _program(rank, pp, micro_batches) if slot.micro_batch < micro_batches]
            for rank in range(pp)
        ]


def _program(rank: int, pp: int, micro_batches: int) -> list[Slot]:
    low, high = rank, 2 * pp - 1 - rank
    total = max(2 * pp - 1, micro_batches)
    run = Counting()
    run.add(2 * (pp - rank) - 1, (Op.F, low))
    run.add(rank, (Op.F, high), (Op.F, low))
    run.add(pp - rank, (Op.F, high), (Op.B, high), (Op.W, high))
    while run.done(Op.F, high) < total:
        if run.done(Op.F, low) < total:
            run.add(1, (Op.F, low))
        run.add(1, (Op.B, low), (Op.W, low), (Op.F, high), (Op.B, high), (Op.W, high))
    run.add(rank, (Op.B, low), (Op.B, high))
    run.add(pp - rank, (Op.B, low), (Op.W, low))
    for stage in (high, low):
        run.add(total - run.done(Op.W, stage), (Op.W, stage))
    return run.slots


schedules.add(
    "zb-v",
    ZeroBubbleV(),
    summary="split backwards on a V of two chunks a rank; no bubble but the start, memory of 1F1B",
    source=SOURCE,
)
