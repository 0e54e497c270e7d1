"""What a field that nobody gave may move: steps with its legal alternatives beside the step with its default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from moesim.evaluator import evaluate
from moesim.problem import Problem
from moesim.spec import steps
from moesim.studies.run_table import Run

FEWEST, MOST = 6, 40
"""Runs that a field is judged by: fewer say nothing, more say no more."""


def field_errors(runs: Sequence[Run], apply: Callable[..., Iterable[Any]] = map) -> dict[str, tuple[int, float]]:
    """Runs looked at, and standard error of the logarithm of a step, for each field that may be left open. [-]

    Of runs that leave a field open, some are drawn evenly from the table.
    """
    found = {}
    for name, values in steps.step_fits().alternatives.items():
        open_runs = [run for run in runs if f"strategy.{name}" in run.assumed]
        if len(open_runs) < FEWEST:
            continue
        chosen = [
            open_runs[index] for index in np.linspace(0, len(open_runs) - 1, min(MOST, len(open_runs))).astype(int)
        ]
        variances = list(apply(field_variance, [run.problem for run in chosen], [{name: values}] * len(chosen)))
        found[name] = (len(chosen), float(np.sqrt(np.mean(variances))))
    return found


def field_variance(problem: Problem, alternatives: Mapping[str, Sequence[object]]) -> float:
    """Variance of the logarithm of a step over its default and the legal alternatives of a field, all as likely. [-]"""
    ((name, values),) = alternatives.items()
    own = problem.strategy
    others = [own.replace(**{name: tuple(one) if isinstance(one, list) else one}) for one in values]
    others = [other for other in others if getattr(other, name) != getattr(own, name) and not problem.check(other)]
    times = evaluate(problem, [own, *others]).step_time_s
    return float(np.var(np.log(times[np.isfinite(times)])))
