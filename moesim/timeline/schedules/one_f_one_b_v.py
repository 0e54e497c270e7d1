"""1F1B-V: whole backwards on a V of two chunks a rank; every rank keeps the same, two thirds of 1F1B's most."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.base.errors import Violation
from moesim.timeline.schedule import Op, Program, Schedule, Slot, needs_chunks, needs_ranks, v_shape
from moesim.timeline.schedules import schedules
from moesim.timeline.squeeze import FORWARD, SECOND_HALF, Squeeze

SOURCE = "qi2024-memory"


class OneForwardOneBackwardV(Schedule):
    """Rank r holds the stages r and 2p - 1 - r; a building block of six slots a micro-batch, moved to the front.

    Two forwards and two backwards of twice the length fill the steady state; what a rank idles does not depend on the
    micro-batches. Every rank keeps 2 (floor(2p/3) + 1) chunks where there are enough micro-batches.

    Notes
    -----
    The order is found with F = 1 and BW = 2; it holds for other durations too. Extra warm-up is OLMo-core's pull-ahead:
    chunks that a rank may keep above the peak of the building block, in order to run forwards earlier.

    References
    ----------
    qi2024-memory, section 3 (building blocks); olmo-core, its 1F1B-V schedule (this block and its squeezing)
    """

    chunks = 2
    settles = True

    def __init__(self, name: str, ahead: int = 0) -> None:
        self.name, self.ahead = name, ahead

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need several ranks with two chunks each."""
        return [*needs_ranks(self.name, 2, pp, SOURCE), *needs_chunks(self.name, 2, vpp, SOURCE)]

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage, on a V."""
        return v_shape(pp)

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank."""
        programs: list[list[Slot]] = [[] for _ in range(pp)]
        for _, rank, kind, stage, micro_batch in Squeeze(pp, micro_batches, self.ahead + extra_warmup).entries:
            if kind != SECOND_HALF:
                programs[rank].append(Slot(Op.F if kind == FORWARD else Op.BW, stage, micro_batch))
        return programs


schedules.add(
    "1f1b-v",
    OneForwardOneBackwardV("1f1b-v"),
    summary="whole backwards on a V of two chunks a rank; every rank keeps two thirds of 1F1B's most",
    source=SOURCE,
)
schedules.add(
    "1f1b-v-ahead",
    OneForwardOneBackwardV("1f1b-v-ahead", ahead=2),
    summary="1F1B-V whose ranks keep two chunks more, to run forwards earlier (OLMo-core's pull-ahead)",
    source="olmo-core",
)
