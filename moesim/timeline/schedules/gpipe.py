"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

import numpy as np

from moesim.base.errors import Violation
from moesim.timeline.graph import IntArray
from moesim.timeline.schedule import Schedule, one_forward_one_backward, single_chunk
from moesim.timeline.schedules import schedules


class GPipe(Schedule):
    """F0 .. F(m-1), then BW0 .. BW(m-1) on every rank; makespan (m + p - 1)(F + BW).

    It has no steady state, hence no pairs to merge and nothing that extra warm-up could change.
    """

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need one chunk a rank."""
        return list(single_chunk("gpipe", vpp))

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> list[IntArray]:
        """Program of each rank."""
        ranks = [np.column_stack([np.full(micro_batches, r), np.arange(micro_batches)]) for r in range(pp)]
        return [one_forward_one_backward(rank, rank, warmup=micro_batches) for rank in ranks]

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return all micro-batches, on every rank."""
        return (micro_batches,) * pp


schedules.add(
    "gpipe",
    GPipe(),
    summary="all forwards, then all backwards",
    source="huang2019",
)
