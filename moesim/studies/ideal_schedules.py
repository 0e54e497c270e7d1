"""Pipeline schedules alone: equal stages, no messages; idle time, activations and copies of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from moesim.base.errors import SpecError, Violation
from moesim.studies.schedules import Wanted
from moesim.timeline.run import run
from moesim.timeline.schedules import find_schedule
from moesim.timeline.step import step_graph
from moesim.timeline.walk import busy_seconds


@dataclass(frozen=True)
class Durations:
    """Forward, backward for inputs and backward for weights of all layers of a rank, in one unit."""

    forward: float
    backward: float
    weights: float

    @classmethod
    def told(cls, text: str) -> Durations:
        """Read ``F,B,W``; a `SpecError` where it is not three numbers above zero."""
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != 3 or not all(0 < number < 1e9 for number in numbers):
            raise SpecError.single(
                "--times", "", f"'{text}' is not F,B,W above zero", "write for example --times 1,1,1"
            )
        return cls(*numbers)


@dataclass(frozen=True)
class Ideal:
    """A schedule of equal stages.

    ``makespan`` in the unit of the durations; ``idle_over_work`` of the rank that idles most [-]; ``activations`` kept at
    most, over those of 1F1B on the first rank, which keeps ``pp`` micro-batches of its layers [-]; ``copies`` of the
    weights.
    """

    name: str
    vpp: int
    refused: tuple[Violation, ...] = ()
    makespan: float | None = None
    idle_over_work: float | None = None
    activations: float | None = None
    copies: int | None = None

    def cells(self) -> list[str]:
        """Columns of the table behind name and chunks."""
        return [f"{self.makespan:g}", f"{self.idle_over_work:.2%}", f"{self.activations:.3f}", str(self.copies)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        refused = [{"rule": one.rule, "message": one.message, "legal": one.legal} for one in self.refused]
        return dict(vars(self)) | {"refused": refused}


def ideal(one: Wanted, times: Durations, pp: int, micro_batches: int) -> Ideal:
    """Run a schedule of `pp` ranks with all stages alike; what it cannot do is refused.

    Chunks a rank: as given, else the schedule's own number, else 2.
    """
    schedule = find_schedule(one.name)
    vpp = one.vpp or schedule.chunks or 2
    refused = tuple(schedule.constraints(pp, micro_batches, vpp))
    if refused:
        return Ideal(one.name, vpp, refused)
    forward, backward, weights = (part / vpp for part in (times.forward, times.backward, times.weights))
    lengths = {"F": forward, "B": backward, "W": weights, "BW": backward + weights}
    lengths["OV"] = forward + lengths["BW"]
    paired = schedule.pairs and schedule.splits  # DualPipe and DualPipeV run a forward beside a backward by definition
    step = step_graph(schedule, pp, micro_batches, vpp, optimizer=False, merge_pairs=paired)
    result = run(step.graph, [lengths[kind] for kind, _ in step.rows], np.zeros(step.num_delay_rows))
    work = min(busy_seconds(step, result))
    kept = max(schedule.in_flight(pp, micro_batches, vpp)) / vpp
    makespan = float(result.makespan)
    return Ideal(one.name, vpp, (), makespan, makespan / work - 1, kept / pp, schedule.pipelines)
