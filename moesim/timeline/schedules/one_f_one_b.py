"""1F1B: one forward, one backward in the steady state."""

from __future__ import annotations

import numpy as np

from moesim.base.errors import Violation
from moesim.timeline.graph import IntArray
from moesim.timeline.schedule import Schedule, one_forward_one_backward, single_chunk
from moesim.timeline.schedules import schedules


class OneForwardOneBackward(Schedule):
    """Rank r issues min(m, p - 1 - r) forwards, then pairs (F, BW), then the backwards left.

    As long as GPipe, with at most p - r micro-batches kept instead of m.

    Notes
    -----
    Merged pairs make each boundary a round trip of two pairs, since neighbours differ by one warm-up forward only:
    the steady state then takes twice as long a micro-batch. Interleaving, where they differ by two, has no such wait.
    """

    pairs = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need one chunk a rank."""
        return list(single_chunk("1f1b", vpp))

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> list[IntArray]:
        """Program of each rank."""
        ranks = [np.column_stack([np.full(micro_batches, r), np.arange(micro_batches)]) for r in range(pp)]
        return [one_forward_one_backward(rank, rank, pp - 1 - r + extra_warmup) for r, rank in enumerate(ranks)]

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return min(m, p - r), and those issued early."""
        return tuple(min(micro_batches, pp - rank + extra_warmup) for rank in range(pp))


schedules.add(
    "1f1b",
    OneForwardOneBackward(),
    summary="one forward, one backward; at most p - r micro-batches kept on rank r",
    source="narayanan2021",
)
