"""The same job on more or fewer nodes: what scaling it gains, where it stops, and what stops it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.cost.plan import Plan
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.studies.kernel_shares import outside_products

FIXED = ("batch", "batch-per-gpu")
"""What stays while the nodes change: the global batch (strong scaling) or the batch of a GPU (weak scaling)."""


@dataclass(frozen=True)
class Point:
    """A job on a number of nodes; ``efficiency``: tokens/s per GPU over those of the first point that runs. [-]"""

    nodes: int
    gpus: int
    global_batch: int
    answer: Estimate | None
    efficiency: float | None
    refused: tuple[str, ...] = ()
    plan: Plan | None = field(default=None, repr=False, compare=False)

    @property
    def share_outside_products(self) -> float | None:
        """Share of the time of all kernels and messages that is in no matrix product of a layer. [-]"""
        return None if self.plan is None else outside_products(self.plan)

    @property
    def tokens_per_s(self) -> float | None:
        """Of the whole job. [1/s]"""
        return None if self.answer is None else self.answer.tokens_per_s_per_gpu * self.gpus

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain: dict[str, Any] = {"nodes": self.nodes, "gpus": self.gpus, "global_batch": self.global_batch}
        if self.answer is None:
            return plain | {"refused": list(self.refused)}
        return plain | {
            "step_time_s": self.answer.step_time_s,
            "low_s": self.answer.low_s,
            "high_s": self.answer.high_s,
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.answer.tokens_per_s_per_gpu,
            "mfu": self.answer.mfu,
            "efficiency": self.efficiency,
            "binding": self.answer.binding["resource"],
            "evidence": self.answer.evidence,
            "exposed_s": dict(self.answer.exposed_s),
            "bubble_fraction": self.answer.bubble_fraction,
            "peak_bytes": self.answer.memory.peak_bytes,
            "fits": self.answer.feasible,
        }


@dataclass(frozen=True, repr=False)
class Scaling(Shown, Sequence[Point]):
    """The points of a curve, and what stays along it."""

    points: tuple[Point, ...]
    fixed: str

    def __len__(self) -> int:
        return len(self.points)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Point, ...]: ...
    def __getitem__(self, index: int | slice) -> Point | tuple[Point, ...]:
        return self.points[index]

    def __repr__(self) -> str:
        return f"Scaling({len(self.points)} points, the same {self.fixed})"


def scaled(problem: Problem, nodes: Sequence[int], fixed: str = "batch") -> Scaling:
    """Estimates of a job on several numbers of nodes; its replicas take what the other degrees leave.

    Parameters
    ----------
    problem
        The job, whose strategy keeps its degrees.
    nodes
        Numbers of nodes.
    fixed
        What stays: ``batch`` or ``batch-per-gpu``.

    Raises
    ------
    SpecError
        Where none of them can be estimated, with every reason.
    """
    before = problem.scenario.cluster.count
    found: list[Point] = []
    issues = []
    first: float | None = None
    for count in nodes:
        batch = problem.global_batch if fixed == "batch" else problem.global_batch * count // before
        gpus = problem.machine.num_gpus * count // before
        try:
            if fixed != "batch" and problem.global_batch * count % before:
                what = f"{problem.global_batch} sequences on {before} nodes are no whole number on {count}"
                raise SpecError.single("--nodes", "", what, "name multiples of a part of the nodes")
            changed = problem.with_changes({"cluster.count": str(count), "global_batch": str(batch)}, "--nodes")
            answer = estimate(changed)
        except SpecError as error:
            told = tuple(  # what the scenario says may be legal on its own nodes
                replace(issue, where=f"--nodes {count}", path="")
                if count != before and not issue.where.startswith("--")
                else issue
                for issue in error.issues
            )
            issues += list(told)
            found.append(Point(count, gpus, batch, None, None, tuple(str(issue) for issue in told)))
            continue
        first = first or answer.tokens_per_s_per_gpu
        found.append(Point(count, gpus, batch, answer, answer.tokens_per_s_per_gpu / first, plan=changed.plan()))
    if first is None:
        raise SpecError(issues)
    return Scaling(tuple(found), fixed)
