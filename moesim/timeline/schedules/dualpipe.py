"""DualPipe: two pipelines in opposite directions through the same ranks."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.base.errors import Violation
from moesim.timeline.dual import dual_program
from moesim.timeline.schedule import Program, Schedule, needs_chunks
from moesim.timeline.schedules import schedules

SOURCE = "deepseek-v3-report"


class DualPipe(Schedule):
    """Half of the micro-batches enter at each end; rank r holds stage r of one direction and p - 1 - r of the other.

    The stages p .. 2p - 1 are the same layers for the second direction: two copies of the parameters. A rank
    idles (p/2 - 1)(OV + BW - 3W), with OV the time of a merged pair, and keeps p + 1 micro-batches.

    Notes
    -----
    The pairs of the steady state are independent as they are, so extra warm-up would change nothing. The first pair of
    the two middle ranks is never merged.

    References
    ----------
    deepseek-v3-report, section 3.2.1; dualpipe, ``dualpipe.py``
    """

    pipelines = 2
    splits = True
    pairs = True
    settles = True

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need an even number of ranks with one chunk each, and an even number of micro-batches, 2p or more."""
        found = list(needs_chunks("dualpipe", 1, vpp, SOURCE))
        if pp % 2:
            message = f"dualpipe folds the ranks in two halves, which pp={pp} does not allow"
            found.append(Violation("dualpipe-pp", message, "an even pp", SOURCE))
        if micro_batches % 2 or micro_batches < 2 * pp:
            message = f"dualpipe needs an even number of micro-batches, 2 pp = {2 * pp} or more, not {micro_batches}"
            legal = f"global_batch / (dp micro_batch) even and {2 * pp} or more"
            found.append(Violation("dualpipe-micro-batches", message, legal, SOURCE))
        return found

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage: p stages one way, then p the other way."""
        return (*range(pp), *range(pp - 1, -1, -1))

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank."""
        programs = []
        for rank in range(pp):
            place = min(rank, pp - 1 - rank)
            one_way, other_way = rank, 2 * pp - 1 - rank
            flows = (one_way, other_way) if rank < pp // 2 else (other_way, one_way)
            first, steady = {other_way: micro_batches // 2}, micro_batches // 2 - pp + place + 1
            programs.append(dual_program(flows, first, place, pp // 2, steady, middle=place == pp // 2 - 1))
        return programs

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Return p + 1 chunks, of both directions together."""
        return (pp + 1,) * pp


schedules.add(
    "dualpipe",
    DualPipe(),
    summary="two pipelines in opposite directions, forward and backward of each overlap; two copies of the parameters",
    source=SOURCE,
)
