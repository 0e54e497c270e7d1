"""ZB-H1: 1F1B with split backwards; weight gradients fill what would be bubble, in 1F1B's memory."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.base.errors import Violation
from moesim.timeline.schedule import Program, Schedule, needs_chunks
from moesim.timeline.schedules import schedules
from moesim.timeline.zero_bubble import one_chunk_program

SOURCE = "qi2024"


class ZeroBubbleH1(Schedule):
    """Rank r issues min(m, p - 1 - r) forwards; it begins with weight gradients once more than r of them wait.

    A rank idles (p - 1)(F + B - W) where B >= W, a third of 1F1B with equal parts. Every rank keeps p micro-batches, as
    many as the first one of 1F1B.

    References
    ----------
    qi2024, section 2 (ZB-H1)
    """

    splits = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need one chunk a rank."""
        return list(needs_chunks("zb-h1", 1, vpp, SOURCE))

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank; there are no pairs that extra warm-up could serve."""
        return [one_chunk_program(rank, micro_batches, pp - 1 - rank, waiting=rank) for rank in range(pp)]

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return min(m, p), on every rank."""
        return (min(micro_batches, pp),) * pp


schedules.add(
    "zb-h1",
    ZeroBubbleH1(),
    summary="1F1B with split backwards; weight gradients fill the bubble, memory of 1F1B's first rank everywhere",
    source=SOURCE,
)
