"""V-Half: half of 1F1B's activations on a V, for half of its bubble."""

from __future__ import annotations

from moesim.timeline.filling import SOURCE, ControllableMemory, Offsets
from moesim.timeline.schedules import schedules


def offsets(pp: int, rank: int) -> Offsets:
    """Passes down the V are two slots apart a rank, passes up one."""
    later = 3 if pp % 2 == 0 else 0
    return Offsets(2 * rank, 3 * pp - 2 - rank, 3 * pp + later + 2 * rank - 1, 6 * pp + later - 2 - rank)


schedules.add(
    "v-half",
    ControllableMemory("v-half", offsets, most=lambda pp: (pp + 2) // 2),
    summary="split backwards on a V, half of 1F1B's activations for half of its bubble",
    source=SOURCE,
)
