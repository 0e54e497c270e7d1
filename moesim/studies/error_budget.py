"""Where the error of a step comes from: how far each group of constants may move it, beside how far it was off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from moesim.evaluator import evaluate
from moesim.intervals import FIELD, MODEL_FORM
from moesim.problem import Problem
from moesim.result import Estimate

if TYPE_CHECKING:
    from moesim.studies.validate import Row

GROUPS = ("kernels", "power", "messages", "host", "overlap", "skew", "unknown fields")
"""What an error may come from."""
OVERLAP_SPREAD = 0.15
"""Share of what overlap saves that a run may not get: standard error. Assumed: published overlap hides 70 to 95 %. [-]"""
SKEW_SPREAD = 0.1
"""Standard error of the logarithm of the hottest rank's load where the router decides. Assumed: learned routers of one
report load it by 1.1 to 1.3. [-]"""
HOTTER = 1.05
"""Factor on the load of the hottest rank for its slope. [-]"""
FLAGS = ("overlap_grad_reduce", "overlap_param_gather", "overlap_tp", "overlap_ep", "overlap_p2p")
PARTS = {
    "kernels": ("gemm", "grouped_gemm", "attention", "memory_bound", "optimizer"),
    "messages": ("ep", "tp", "cp", "pp", "dp"),
    "host": ("host",),
}
"""Parts of the breakdown that say how much of the step a group makes."""
SKEW_FIELDS = ("rank_imbalance", "routing")


@dataclass(frozen=True)
class Budget:
    """What may move a step.

    ``errors``: standard error of its logarithm by group. ``sensitivity``: for kernels, messages and host their share of
    the busy critical path, which is what the step moves by when they all do; for overlap the logarithm of the step without it
    over the step; for skew its elasticity on the load of the hottest rank. [-]
    """

    errors: dict[str, float]
    sensitivity: dict[str, float]


def row_budget(problem: Problem, answer: Estimate) -> Budget:
    """Budget of one step: errors from its interval, overlap and skew from steps with other strategies."""
    variance = dict.fromkeys(GROUPS, 0.0)
    for one in answer.interval.contributions:
        group = group_of(one.name)
        if group is not None:
            variance[group] += one.log_error**2
    saved, hotter = _by_strategy(problem)
    variance["overlap"] += (OVERLAP_SPREAD * saved) ** 2
    if problem.model.moe is not None and problem.strategy.routing not in ("balanced", "capacity"):
        variance["skew"] += (SKEW_SPREAD * hotter) ** 2
    seconds = {name: sum(answer.breakdown_s.get(part, 0.0) for part in parts) for name, parts in PARTS.items()}
    shares = {name: value / sum(seconds.values()) for name, value in seconds.items()}
    errors = {name: float(np.sqrt(value)) for name, value in variance.items()}
    return Budget(errors, shares | {"overlap": saved, "skew": hotter})


def group_of(name: str) -> str | None:
    """Group of a contribution to an interval; None for what is known of whole steps only."""
    if name == MODEL_FORM:
        return None
    if name.startswith(FIELD):
        return "skew" if name.removeprefix(FIELD) in SKEW_FIELDS else "unknown fields"
    if any(word in name for word in ("power", "energy", "clock")):
        return "power"
    if "host" in name or "launch" in name:
        return "host"
    words = ("transport", "collectives", "links", "nic", "fabric", "node.")
    return "messages" if name.startswith(words) else "kernels"


def _by_strategy(problem: Problem) -> tuple[float, float]:
    """Logarithm of the step without overlap over the step, and elasticity of the step on the hottest rank's load. [-]"""
    own = problem.strategy
    bare = own.replace(**dict.fromkeys(FLAGS, False))
    others = [bare, bare.replace(overlap_p2p=own.overlap_p2p)]
    if problem.model.moe is not None:
        others.append(own.replace(rank_imbalance=own.rank_imbalance * HOTTER))
    times = np.log(evaluate(problem, [own, *others]).step_time_s)
    saved = np.nan_to_num(times[1:3] - times[0]).max(initial=0.0)
    hotter = (times[3] - times[0]) / np.log(HOTTER) if len(times) > 3 and np.isfinite(times[3]) else 0.0
    return float(saved), float(hotter)


def budget_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Budget of each family: standard errors by group over its rows, together, what was found, and what is left.

    ``expected``: root of the mean variance of all groups; ``found``: root of the mean square of the logarithm of
    predicted over measured; ``left``: what the groups do not explain. [-]
    """
    families: dict[str, list[Row]] = {}
    for row in rows:
        if row.budget is not None and row.time_error is not None:
            families.setdefault(row.family, []).append(row)
    return [{"family": name, "rows": len(members), **_together(members)} for name, members in sorted(families.items())]


def _together(rows: Sequence[Row]) -> dict[str, Any]:
    budgets = [row.budget for row in rows if row.budget is not None]
    errors = {name: _root_mean_square([one.errors[name] for one in budgets]) for name in GROUPS}
    names = budgets[0].sensitivity
    sensitivity = {name: float(np.mean([one.sensitivity[name] for one in budgets])) for name in names}
    expected = float(np.sqrt(sum(value**2 for value in errors.values())))
    found = _root_mean_square([float(np.log1p(row.time_error or 0.0)) for row in rows])
    left = float(np.sqrt(max(found**2 - expected**2, 0.0)))
    return {"errors": errors, "sensitivity": sensitivity, "expected": expected, "found": found, "left": left}


def _root_mean_square(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def largest(errors: Mapping[str, float]) -> str:
    """Group that may move a step most."""
    return max(errors, key=lambda name: errors[name])
