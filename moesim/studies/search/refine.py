"""A closer bound for plans that look good: the step graph of their schedule, run with the least times of its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.pipeline import plan_graph
from moesim.studies.search.bounds import ROUNDING
from moesim.studies.search.frames import Frame
from moesim.studies.search.tables import Array, Tables
from moesim.timeline.run import run_columns
from moesim.timeline.step import StepGraph


@dataclass(frozen=True, eq=False)
class Least:
    """Least seconds of the chunks of some plans of a frame.

    ``places`` of the plans in the frame; ``times``: of a forward, a whole backward, an input gradient, and weight
    gradients, by kind of stage. (4, kinds, n) [s]
    """

    frame: Frame
    places: NDArray[np.int64]
    times: Array

    @property
    def micro_batches(self) -> Array:
        """Micro-batches of each plan. (n,)"""
        return np.asarray(self.frame.micro_batches[self.places])

    def only(self, mask: NDArray[np.bool_]) -> Least:
        """Some of the plans."""
        return Least(self.frame, self.places[mask], self.times[:, :, mask])

    def tasks(self) -> tuple[StepGraph, Array]:
        """Step graph of plans with one number of micro-batches, and least seconds of its tasks. (rows, n)"""
        frame = self.frame
        plan = replace(
            frame.plan, num_micro_batches=int(self.micro_batches[0]), extra_warmup=frame.extra_warmup
        )  # the graph depends on nothing else, and is that of the exact run
        graph = plan_graph(plan)
        durations = np.zeros((graph.num_rows, len(self.places)))
        for (kind, where), row in graph.rows.items():
            durations[row] = self._task(kind, where)
        return graph, durations

    def _task(self, kind: str, where: int | tuple[int, int]) -> Numeric:
        if isinstance(where, tuple):
            return np.maximum(self._chunk(0, where[0]), self._chunk(1, where[1])) + (
                self._sent(where[0]) + self._sent(where[1] - 1)
            )
        match kind:
            case "F":
                return self._chunk(0, where) + self._sent(where)
            case "BW":
                return self._chunk(1, where) + self._sent(where - 1)
            case "B":
                return self._chunk(2, where) + self._sent(where - 1)
            case "W":
                return self._chunk(3, where)
        return 0.0

    def _chunk(self, row: int, stage: int) -> Array:
        return np.asarray(self.times[row, self.frame.stage_kinds[stage]])

    def _sent(self, stage: int) -> Numeric:
        """The send behind a stage, where it holds up its rank. [s]"""
        seconds = self.frame.sends[stage] if stage >= 0 else 0.0
        return seconds[self.places] if isinstance(seconds, np.ndarray) and seconds.ndim else seconds


def closer_bounds(some: Sequence[Least]) -> list[Array]:
    """What no run of plans can beat, each of one number of micro-batches; graphs that they share are run once. [s]

    No task takes less than it does here, and the longest path of a graph grows with its tasks.
    """
    tasks = [one.tasks() for one in some]
    shared: dict[int, list[int]] = {}
    for place, (graph, _) in enumerate(tasks):
        shared.setdefault(id(graph), []).append(place)
    found = [np.zeros(0)] * len(some)
    for places in shared.values():
        longest = run_columns(tasks[places[0]][0].graph, np.hstack([tasks[place][1] for place in places]))[0]
        ends = np.cumsum([len(some[place].places) for place in places])
        for place, own in zip(places, np.split(longest, ends[:-1]), strict=True):
            found[place] = (own + some[place].frame.tail[some[place].places]) * (1 - ROUNDING)
    return found


def least_times(frame: Frame, tables: Tables, places: NDArray[np.int64], columns: NDArray[np.int64]) -> Least:
    """Least times of the plans in some columns of a frame; ``places``: of its columns in the tables."""
    rows = tables.rows(frame.kinds)[:, None]
    chosen, times = places[columns][None], tables.times
    found = [times.forward[rows, chosen], times.backward[rows, chosen]]
    if frame.plan.schedule.splits:
        found += [times.split[0][rows, chosen], times.split[1][rows, chosen]]
    return Least(frame, columns, np.stack(found))
