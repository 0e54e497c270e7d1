"""Scaling curves of several ways to run a job, and the sizes at which one overtakes another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.words import changes_in_words
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.studies.meaning import sound_changes
from moesim.studies.scaling import Point, scaled


@dataclass(frozen=True)
class Way:
    """One way to run the job on every number of nodes; nothing changed is the job as it stands."""

    changes: Mapping[str, str]
    points: tuple[Point, ...]
    refused: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What is changed."""
        return changes_in_words(self.changes) or "as it stands"


@dataclass(frozen=True)
class Beside:
    """Ways beside each other, the job as it stands first."""

    fixed: str
    ways: tuple[Way, ...]

    @property
    def first(self) -> Estimate:
        """The first estimate of the job as it stands."""
        answers = [point.answer for way in self.ways for point in way.points]
        return next(answer for answer in answers if answer is not None)

    def gains(self, way: Way) -> list[dict[str, Any]]:
        """What a way gains over the job as it stands, by number of nodes where both run.

        ``speedup``: step of the job over that of the way; ``delta_peak_bytes`` of the fullest rank [B]. ``fits``: the way,
        ``base_fits``: the job. ``share_outside_products``: of the time of the job's kernels and messages, what is in no
        matrix product of a layer, which a lower precision leaves as it is. [-]
        """
        found = []
        for mine, base in zip(way.points, self.ways[0].points, strict=True):
            if mine.answer is None or base.answer is None:
                continue
            delta = mine.answer.memory.peak_bytes - base.answer.memory.peak_bytes
            found.append(
                {
                    "nodes": mine.nodes,
                    "speedup": base.answer.step_time_s / mine.answer.step_time_s,
                    "delta_peak_bytes": delta,
                    "fits": mine.answer.feasible,
                    "base_fits": base.answer.feasible,
                    "share_outside_products": base.share_outside_products,
                    "host_bound": mine.answer.binding["resource"] == "host",
                }
            )
        return found

    def crossovers(self, way: Way) -> list[int]:
        """Numbers of nodes from which on a way is faster where it was slower before, or the other way round."""
        gains = self.gains(way)
        pairs = pairwise(gains)
        return [after["nodes"] for before, after in pairs if (before["speedup"] > 1) != (after["speedup"] > 1)]

    def verdict(self, way: Way) -> str:
        """In words, which of the two is faster, and where; and where it does not fit."""
        gains, crossed = self.gains(way), self.crossovers(way)
        if not gains:
            return f"{way.name}: nothing to compare"
        faster = [one["nodes"] for one in gains if one["speedup"] > 1]
        where = f"changes at {', '.join(map(str, crossed))} nodes" if crossed else "no crossover"
        told = f"faster on {', '.join(map(str, faster))} nodes" if faster else "never faster"
        short = [str(one["nodes"]) for one in gains if not one["fits"]]
        fits = f"; does not fit on {', '.join(short)} nodes" if short else ""
        return f"{way.name}: {told}; {where}{fits}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units; the curve of the job as it stands under ``points``."""
        plain: dict[str, Any] = {"fixed": self.fixed, "points": [point.to_dict() for point in self.ways[0].points]}
        if len(self.ways) > 1:
            plain["beside"] = [
                {
                    "set": dict(way.changes),
                    "points": [point.to_dict() for point in way.points],
                    "refused": list(way.refused),
                    "gains": self.gains(way),
                    "crossover_nodes": self.crossovers(way),
                    "verdict": self.verdict(way),
                }
                for way in self.ways[1:]
            ]
        return plain


def scaled_beside(
    problem: Problem, nodes: Sequence[int], fixed: str = "batch", others: Sequence[Mapping[str, str]] = ()
) -> Beside:
    """Scaling curves of a job as it stands and under each of several changes.

    Raises
    ------
    SpecError
        Where the job as it stands runs on none of the sizes, or a change has no meaning whatever the sizes are.
    """
    sound_changes(problem, others, "--beside")
    ways = [Way({}, scaled(problem, nodes, fixed).points)]
    for changes in others:
        try:
            ways.append(Way(changes, scaled(problem.with_changes(changes, "--beside"), nodes, fixed).points))
        except SpecError as error:
            empty = tuple(Point(point.nodes, point.gpus, point.global_batch, None, None) for point in ways[0].points)
            ways.append(Way(changes, empty, tuple(str(issue) for issue in error.issues)))
    return Beside(fixed, tuple(ways))
