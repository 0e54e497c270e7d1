"""V-Min: a third of 1F1B's activations on a V, for two thirds of its bubble."""

from __future__ import annotations

from moesim.timeline.filling import SOURCE, ControllableMemory, Offsets
from moesim.timeline.schedules import schedules


def offsets(pp: int, rank: int) -> Offsets:
    """Passes are one slot apart a rank, in both directions."""
    later = 2 if pp % 3 == 0 else 0
    return Offsets(rank, 2 * pp - 1 - rank, 2 * pp + later + rank, 4 * pp + later - 1 - rank)


schedules.add(
    "v-min",
    ControllableMemory("v-min", offsets, most=lambda pp: (pp + 4) // 3),
    summary="split backwards on a V, a third of 1F1B's activations for two thirds of its bubble",
    source=SOURCE,
)
