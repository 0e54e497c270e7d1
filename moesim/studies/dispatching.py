"""The expert exchange of a job: what each leg takes on each transport, what of it the step sees, and what kernels lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.numeric import first
from moesim.base.words import changes_in_words
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.studies.basis import basis
from moesim.studies.explain import OpRow, explain
from moesim.studies.faults import with_changes

LEGS = ("dispatch", "combine", "combine-backward", "dispatch-backward")
"""Exchanges of a routed layer, in the order of a micro-batch."""


@dataclass(frozen=True)
class Exchange:
    """The exchange of one case.

    ``leg_s``: each leg of a routed layer and a micro-batch; ``total_s`` of a step on the rank that finishes last; ``exposed_s``:
    what the step would lose without it. [s] ``num_sms``: SMs that its kernels hold, ``kernel_slowdown``: how much longer
    kernels beside it take. [-] ``buffer_bytes`` of a rank [B]. ``max_ranks``: ranks of a group that the transport was
    seen to work with.
    """

    case: Mapping[str, Any]
    transport: str
    ranks: int
    domains: int
    leg_s: Mapping[str, float]
    total_s: float
    exposed_s: float
    num_sms: float
    kernel_slowdown: float
    host_syncs: int
    buffer_bytes: float
    max_ranks: int | None
    answer: Estimate

    def to_dict(self, measured_s: float | None = None) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = {name: getattr(self, name) for name in Exchange.__dataclass_fields__ if name != "answer"}
        told = {
            "exposed_share": self.exposed_s / self.answer.step_time_s,
            "step_time_s": self.answer.step_time_s,
            "tokens_per_s_per_gpu": self.answer.tokens_per_s_per_gpu,
            "gemm_s": self.answer.breakdown_s["gemm"] + self.answer.breakdown_s["grouped_gemm"],
            "peak_bytes": self.answer.memory.peak_bytes,
            "fits": self.answer.feasible,
        }
        legs = {f"{name.replace('-', '_')}_s": self.leg_s[name] for name in LEGS}
        return (
            plain
            | {"case": dict(self.case), "leg_s": legs}
            | told
            | {"basis": basis(self.answer, measured_s, changes_in_words(self.case))}
        )


@dataclass(frozen=True)
class Exchanges:
    """Cases in the order in which they were asked, and those that are refused with the reason."""

    cases: tuple[Exchange, ...]
    refused: tuple[tuple[Mapping[str, Any], tuple[str, ...]], ...]

    @property
    def best(self) -> Exchange:
        """The case that makes most tokens, of those that fit where any does."""
        fitting = [one for one in self.cases if one.answer.feasible] or self.cases
        return max(fitting, key=lambda one: one.answer.tokens_per_s_per_gpu)

    @property
    def recommendation(self) -> str:
        """What to take, in words."""
        best = self.best
        told = changes_in_words(best.case) or f"transport={best.transport}"
        fits = "" if best.answer.feasible else " (no case fits in memory)"
        share = best.exposed_s / best.answer.step_time_s
        return (
            f"{told}: {share:.0%} of its step waits for the exchange; bound by {best.answer.binding['resource']}{fits}"
        )

    def to_dict(self, measured_s: float | None = None) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "cases": [one.to_dict(measured_s) for one in self.cases],
            "refused": [{"case": dict(case), "why": list(why)} for case, why in self.refused],
            "best": dict(self.best.case),
            "recommendation": self.recommendation,
            "basis": self.best.to_dict(measured_s)["basis"],
        }


def exchanges(problem: Problem, cases: Sequence[Mapping[str, Any]]) -> Exchanges:
    """The exchange of a job under each of several changes.

    Parameters
    ----------
    problem
        The job.
    cases
        Changes as ``--vary`` takes them; an empty one is the job as it stands.

    Raises
    ------
    SpecError
        Where the model routes nothing, or no case can be estimated, with every reason.
    """
    if problem.model.moe is None:
        raise SpecError.single("", "", f"{problem.model.name} has no experts, so nothing is exchanged", "another model")
    found, refused, issues = [], [], []
    for case in cases:
        try:
            found.append(exchange(with_changes(problem, case, "--vary") if case else problem, case))
        except SpecError as error:
            refused.append((case, tuple(issue.what for issue in error.issues)))
            issues += list(error.issues)
    if not found:
        raise SpecError(dict.fromkeys(issues))
    return Exchanges(tuple(found), tuple(refused))


def exchange(problem: Problem, case: Mapping[str, Any]) -> Exchange:
    """The exchange of one job."""
    told = explain(problem)
    plan, answer = problem.plan(), told.estimate
    group = plan.machine.group(plan.mesh, "ep")
    legs = [row for row in told.ops if row.lane == "ep" and row.category == "ep"]
    total = sum(row.seconds * row.calls for row in legs)
    kernels = sum(row.seconds * row.calls for row in told.ops if row.lane == "sm")
    share = first(plan.contention("OV" if plan.strategy.overlap_ep else "F").kernels)
    return Exchange(
        case,
        plan.strategy.transport,
        int(plan.strategy.ep),
        int(first(group.nodes)),
        {name: _leg(legs, name) for name in LEGS},
        total,
        answer.exposed_s["ep"],
        first(plan.transport.sm_share(group, plan.machine) * plan.machine.gpu.num_sms),
        share * min(total / kernels, 1.0) if kernels else 0.0,
        plan.transport.host_syncs,
        max(float(stage["transport_bytes"]) for stage in answer.memory.stages),
        getattr(plan.transport, "max_ranks", None),
        answer,
    )


def _leg(rows: Sequence[OpRow], name: str) -> float:
    """The longest of the legs of a name, over the kinds of layer; 0 on one rank. [s]"""
    return max((row.seconds for row in rows if row.name == name), default=0.0)
