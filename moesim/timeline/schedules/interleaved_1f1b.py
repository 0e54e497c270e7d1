"""Interleaved 1F1B: several chunks a rank, so that filling and draining the pipeline costs less."""

from __future__ import annotations

import numpy as np

from moesim.base.errors import Violation
from moesim.timeline.graph import IntArray
from moesim.timeline.schedule import Schedule, one_forward_one_backward
from moesim.timeline.schedules import schedules

SOURCE = "narayanan2021"


class InterleavedOneForwardOneBackward(Schedule):
    """Rank r holds the stages r, r + p, r + 2p, ...; micro-batches go in rounds through all chunks of a rank.

    A round has g = m / max(1, m // p) micro-batches (p of them where p divides m). The k-th forward of a rank is of
    chunk (k // g) mod v, the k-th backward of the mirrored chunk; rank r issues min(m v, (v - 1) g + 2 (p - 1 - r))
    forwards before the first pair.

    Notes
    -----
    Rounds of other than p micro-batches follow PyTorch's ScheduleInterleaved1F1B. Megatron-Core asks for m % p == 0.
    """

    chunks = None
    pairs = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need several ranks and chunks, and whole rounds."""
        found = []
        if pp < 2:
            found.append(
                Violation("interleaved-1f1b-pp", f"interleaving needs pipeline ranks, not pp={pp}", "pp>=2", SOURCE)
            )
        if vpp < 2:
            message = f"interleaving needs several chunks a rank, not vpp={vpp}"
            found.append(Violation("interleaved-1f1b-vpp", message, "vpp>=2", SOURCE))
        rounds = max(1, micro_batches // pp)
        if micro_batches % rounds:
            legal = f"a multiple of {pp}, such as {micro_batches // pp * pp} or {(micro_batches // pp + 1) * pp}"
            message = f"{micro_batches} micro-batches do not make {rounds} equal rounds at pp={pp}"
            found.append(Violation("interleaved-1f1b-rounds", message, legal, "PyTorch ScheduleInterleaved1F1B"))
        return found

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> list[IntArray]:
        """Program of each rank."""
        round_size = _round_size(pp, micro_batches)
        k = np.arange(micro_batches * vpp)
        chunk = k // round_size % vpp
        micro_batch = k // (round_size * vpp) * round_size + k % round_size
        programs = []
        for rank in range(pp):
            forward = np.column_stack([chunk * pp + rank, micro_batch])
            backward = np.column_stack([(vpp - 1 - chunk) * pp + rank, micro_batch])
            warmup = (vpp - 1) * round_size + 2 * (pp - 1 - rank) + extra_warmup
            programs.append(one_forward_one_backward(forward, backward, warmup))
        return programs

    def alike(self, pp: int, micro_batches: int, vpp: int) -> int:
        """Return two rounds where they are of p micro-batches; else rounds differ with the micro-batches."""
        return micro_batches if micro_batches % pp else min(micro_batches, 2 * pp)

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return min(m v, (v - 1) g + 2 (p - 1 - r) + 1), and those issued early."""
        most = (vpp - 1) * _round_size(pp, micro_batches) + 1 + extra_warmup
        return tuple(min(micro_batches * vpp, most + 2 * (pp - 1 - rank)) for rank in range(pp))


def _round_size(pp: int, micro_batches: int) -> int:
    return micro_batches // max(1, micro_batches // pp)


schedules.add(
    "interleaved-1f1b",
    InterleavedOneForwardOneBackward(),
    summary="1F1B over several chunks a rank; the bubble shrinks by vpp, messages and kept chunks grow",
    source=SOURCE,
)
