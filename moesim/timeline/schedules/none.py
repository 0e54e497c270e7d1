"""No pipeline: gradient accumulation on one rank."""

from __future__ import annotations

import numpy as np

from moesim.base.errors import Violation
from moesim.timeline.graph import IntArray
from moesim.timeline.schedule import Schedule, one_forward_one_backward, single_chunk
from moesim.timeline.schedules import schedules


class NoPipeline(Schedule):
    """One stage, micro-batches one after another: F0 BW0 F1 BW1 ...

    With one extra warm-up forward it is F0 (F1 BW0) (F2 BW1) ... BW(m-1): the pairs of Megatron-Core's combined
    forward and backward without pipelining.
    """

    pairs = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need one pipeline rank with one chunk."""
        found = list(single_chunk("none", vpp))
        if pp != 1:
            found.append(Violation("none-pp", f"schedule none has one pipeline rank, not pp={pp}", "pp=1"))
        return found

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> list[IntArray]:
        """Program of the one rank."""
        forward = np.column_stack([np.zeros(micro_batches, np.int64), np.arange(micro_batches)])
        return [one_forward_one_backward(forward, forward, extra_warmup)]

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return one micro-batch, and those issued early."""
        return (min(micro_batches, 1 + extra_warmup),)


schedules.add(
    "none",
    NoPipeline(),
    summary="one stage; micro-batches one after another",
    source="megatron-lm",
)
