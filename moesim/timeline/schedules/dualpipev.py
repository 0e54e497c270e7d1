"""DualPipeV: DualPipe cut in half, on a V of two chunks a rank with one copy of the parameters."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.base.errors import Violation
from moesim.timeline.dual import dual_program
from moesim.timeline.schedule import Program, Schedule, needs_chunks, needs_ranks, v_shape
from moesim.timeline.schedules import schedules

SOURCE = "dualpipe"


class DualPipeV(Schedule):
    """Rank r holds the stages r and 2p - 1 - r; the way down and the way back up take the place of two directions.

    A rank idles (p - 1)(OV + BW - 3W) of a chunk's times, with OV the time of a merged pair, and keeps 2p + 1 chunks.

    Notes
    -----
    The pairs of the steady state are independent as they are, so extra warm-up would change nothing. The first pair of
    the last rank is never merged.

    References
    ----------
    dualpipe, ``dualpipev.py``; pytorch-pipelining, ``ScheduleDualPipeV``
    """

    chunks = 2
    splits = True
    pairs = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need several ranks with two chunks each, and 2p micro-batches or more."""
        found = [*needs_ranks("dualpipev", 2, pp, SOURCE), *needs_chunks("dualpipev", 2, vpp, SOURCE)]
        if micro_batches < 2 * pp:
            message = f"dualpipev needs 2 pp = {2 * pp} micro-batches or more, not {micro_batches}"
            legal = f"global_batch / (dp micro_batch) {2 * pp} or more"
            found.append(Violation("dualpipev-micro-batches", message, legal, SOURCE))
        return found

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage, on a V."""
        return v_shape(pp)

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank."""
        return [
            dual_program(
                (rank, 2 * pp - 1 - rank), {}, rank, pp, micro_batches - 2 * pp + rank + 1, middle=rank == pp - 1
            )
            for rank in range(pp)
        ]

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return 2p + 1 chunks."""
        return (2 * pp + 1,) * pp


schedules.add(
    "dualpipev",
    DualPipeV(),
    summary="DualPipe on a V of two chunks a rank: forward and backward overlap, one copy of the parameters",
    source=SOURCE,
)
