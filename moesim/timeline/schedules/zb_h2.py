"""ZB-H2: twice 1F1B's memory, so that no rank waits between its first and its last task."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.base.errors import Violation
from moesim.timeline.schedule import Program, Schedule, needs_chunks
from moesim.timeline.schedules import schedules
from moesim.timeline.zero_bubble import one_chunk_program

SOURCE = "qi2024"


class ZeroBubbleH2(Schedule):
    """Rank r issues 2 (p - r) - 1 forwards before its first backward, and lets 2 r weight gradients wait.

    The first backward reaches rank r at slot 2p - 1 - r, and its first forward came at slot r: so many forwards fit in
    between. With equal parts a rank then works without a break from slot r to r + 3 m, given m >= 2p - 1.

    Notes
    -----
    The paper draws the order and does not write it down; this one is derived from what it says of warm-up and memory.
    Its zero bubble needs an optimizer step that is as skewed as the pipeline: the global checks (gradient norm,
    overflow) are validated after the step and rolled back where they fail. A step that ends together idles p - 1 slots.

    References
    ----------
    qi2024, sections 2 (ZB-H2) and 4
    """

    splits = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need one chunk a rank."""
        return list(needs_chunks("zb-h2", 1, vpp, SOURCE))

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank; there are no pairs that extra warm-up could serve."""
        return [one_chunk_program(rank, micro_batches, 2 * (pp - 1 - rank), waiting=2 * rank) for rank in range(pp)]

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return min(m, 2p - 1), on every rank."""
        return (min(micro_batches, 2 * pp - 1),) * pp


schedules.add(
    "zb-h2",
    ZeroBubbleH2(),
    summary="ZB-H1 with twice the warm-up and memory; no rank waits between its first and its last task",
    source=SOURCE,
)
