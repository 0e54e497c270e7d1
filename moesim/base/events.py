"""The one event schema of simulated and measured timelines."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """Something that a rank does for a while on one of its lanes.

    Parameters
    ----------
    rank
        Rank, or pipeline rank in a simulated step.
    lane
        Resource it holds, such as ``sm`` or ``nic``.
    name, category
        What a viewer shows, and the class it is summed under.
    start_s, duration_s
        When it starts and how long it lasts. [s]
    args
        Anything else worth showing.
    """

    rank: int
    lane: str
    name: str
    category: str
    start_s: float
    duration_s: float
    args: dict[str, object] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """End of the event. [s]."""
        return self.start_s + self.duration_s


@dataclass(frozen=True)
class Flow:
    """A dependency between two events, by their index in the list of events."""

    source: int
    target: int
