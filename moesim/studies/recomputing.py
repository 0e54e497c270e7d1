"""What recomputing each module frees of memory and costs of time, and which to take for a number of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.workload.recompute import parse, policies

WHOLE = ("full", "sqrt", "op-selective")
"""Policies that stand for all modules: they are alternatives to a set, not members of it."""


@dataclass(frozen=True)
class Module:
    """One policy added to those of the job.

    ``freed_bytes`` of the peak [B], ``added_s`` to the step [s]; ``refused``: why it cannot be added.
    """

    name: str
    freed_bytes: float = 0.0
    added_s: float = 0.0
    peak_bytes: float = 0.0
    step_time_s: float = 0.0
    refused: tuple[str, ...] = ()

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes freed for a second of step time; None where it frees nothing, or costs nothing. [B/s]"""
        return self.freed_bytes / self.added_s if self.freed_bytes > 0 and self.added_s > 0 else None


@dataclass(frozen=True)
class Ranking:
    """Modules by what they free for their time, and the set that frees a number of bytes.

    ``chosen``: the policies to add, in the order in which they were taken; None where even all of them free too little.
    """

    base: Estimate
    modules: tuple[Module, ...]
    target_bytes: float | None
    chosen: tuple[str, ...] | None
    chosen_estimate: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain: dict[str, Any] = {
            "step_time_s": self.base.step_time_s,
            "peak_bytes": self.base.memory.peak_bytes,
            "recompute": list(self.base.strategy["recompute"]),
            "modules": [
                {"name": one.name, "refused": list(one.refused)}
                if one.refused
                else dict(vars(one)) | {"refused": [], "bytes_per_s": one.bytes_per_s}
                for one in self.modules
            ],
        }
        if self.target_bytes is not None:
            after = self.chosen_estimate
            plain["target_bytes"] = self.target_bytes
            plain["chosen"] = None if self.chosen is None else list(self.chosen)
            plain["chosen_step_time_s"] = None if after is None else after.step_time_s
            plain["chosen_peak_bytes"] = None if after is None else after.memory.peak_bytes
        return plain


def ranked(problem: Problem, target_bytes: float | None = None) -> Ranking:
    """Rank what could be recomputed besides what the job recomputes already.

    Parameters
    ----------
    problem
        The job; what it recomputes is the base.
    target_bytes
        Memory to free. The cheapest policy is taken first, then ranked again with it, until enough is free. [B]
    """
    base = estimate(problem)
    modules = _ranked_from(problem, base, problem.strategy.recompute)
    chosen: tuple[str, ...] | None = None
    reached: Estimate | None = None
    if target_bytes is not None:
        chosen, reached = _enough(problem, base, target_bytes)
    return Ranking(base, modules, target_bytes, chosen, reached)


def _ranked_from(problem: Problem, base: Estimate, taken: tuple[str, ...]) -> tuple[Module, ...]:
    present = {parse(name)[0] for name in taken}
    names = [] if "full" in present else [name for name in policies.names() if name not in present]
    found = [_added(problem, base, (name,) if name in WHOLE else (*taken, name), name) for name in names]
    return tuple(sorted(found, key=lambda one: (bool(one.refused), -_worth(one))))


def _worth(module: Module) -> float:
    if module.freed_bytes <= 0:
        return -1.0
    return module.freed_bytes / max(module.added_s, 1e-9)


def _added(problem: Problem, base: Estimate, names: tuple[str, ...], name: str) -> Module:
    try:
        after = _with(problem, names)
    except SpecError as error:
        return Module(name, refused=tuple(issue.what for issue in error.issues))
    peak, step = after.memory.peak_bytes, after.step_time_s
    return Module(name, base.memory.peak_bytes - peak, step - base.step_time_s, peak, step)


def _with(problem: Problem, names: tuple[str, ...]) -> Estimate:
    return estimate(problem.with_changes({"recompute": ",".join(names)}))


def _enough(problem: Problem, base: Estimate, target: float) -> tuple[tuple[str, ...] | None, Estimate | None]:
    """Take the policy with the most bytes for its time, again and again; the whole alternatives compete at the end."""
    taken, now = problem.strategy.recompute, base
    added: tuple[str, ...] = ()
    while base.memory.peak_bytes - now.memory.peak_bytes < target:
        options = [
            one
            for one in _ranked_from(problem, now, taken)
            if not one.refused and one.freed_bytes > 0 and one.name not in WHOLE
        ]
        if not options:
            break
        taken, added = (*taken, options[0].name), (*added, options[0].name)
        now = _with(problem, taken)
    greedy = (added, now) if base.memory.peak_bytes - now.memory.peak_bytes >= target else None
    answers = [] if greedy is None else [greedy]
    for name in WHOLE:
        try:
            after = _with(problem, (name,))
        except SpecError:
            continue
        if base.memory.peak_bytes - after.memory.peak_bytes >= target:
            answers.append(((name,), after))
    return min(answers, key=lambda one: one[1].step_time_s) if answers else (None, None)
