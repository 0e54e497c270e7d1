"""What every kind of attention declares about its input projections."""

from dataclasses import dataclass

from moesim.workload.ops import Op, Saved


@dataclass(frozen=True)
class Projections:
    """Operations from the normed input to queries, keys and values, their backward, and what they keep."""

    forward: tuple[Op, ...]
    backward: tuple[Op, ...]
    saved: tuple[Saved, ...]
