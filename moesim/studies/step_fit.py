"""``moesim calibrate runs``: factors on what software takes, from published steps, judged by groups that no fit saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import SpecError
from moesim.calibrate.fit import Parameter
from moesim.calibrate.overlay import Overlay
from moesim.calibrate.score import Score, Spread, score
from moesim.calibrate.steps import (
    Linear,
    can_be_fitted,
    errors_without_each,
    fit_steps,
    loss,
    spread_rows,
    step_error,
    without_each,
)
from moesim.estimator import estimate
from moesim.intervals import FIELD, MODEL_FORM
from moesim.spec import steps
from moesim.spec.calibration import NORMAL_95
from moesim.studies.run_table import Refused, Run, run_of, table_rows
from moesim.studies.step_factors import at_factors, step_times_at
from moesim.studies.step_fields import field_errors

Floats = NDArray[np.floating[Any]]
Factors = Mapping[str, float]

SLOPE = 1.1
"""Factor by which a number is raised for its slope: wide enough to see past small kinks. [-]"""
LEAST = 1e-3
"""Standard error of a field below which it is left out. [-]"""
ROUNDS = 2
"""How often steps are made linear: at the sources, then where the fit went."""


@dataclass(frozen=True)
class FitRun:
    """A measured run of a family of software. Time in s."""

    run: Run
    family: str
    kind: str
    group: str
    measured_s: float


@dataclass
class FamilyFit:
    """What the rows of a family say.

    ``factors``: of all rows; ``folds``: without each group. ``before``, ``after``: logarithm of predicted over measured,
    with the sources and cross-validated. ``kept``: whether the factors are better on groups that they have not seen.
    """

    name: str
    runs: list[FitRun]
    before: Floats
    factors: dict[str, float] = field(default_factory=dict)
    folds: dict[str, dict[str, float]] = field(default_factory=dict)
    after: Floats = field(default_factory=lambda: np.zeros(0))
    kept: bool = False

    @property
    def errors(self) -> Floats:
        """Logarithm of predicted over measured that counts: cross-validated where factors are kept. [-]"""
        return self.after if self.kept else self.before

    def of(self, group: str) -> dict[str, float]:
        """Factors that the runs of a group are judged with. [-]"""
        return self.folds.get(group, {}) if self.kept else {}


def fit_runs(path: Path, jobs: int = 1, models: Path | None = None, command: str = "moesim calibrate runs") -> Overlay:
    """Fit every family of software to the runs of a table, and say what steps are off beyond their prices.

    Parameters
    ----------
    path, models
        A table as in docs/run_table.md; a folder with models of one's own.
    jobs
        Processes that share the work.
    command
        Command line that makes the same overlay again.
    """
    runs, dropped = measured_runs(path, models)
    if not runs:
        raise SpecError.single(str(path), "", "no row has a step time that can be fitted", "give measured steps")
    with ProcessPoolExecutor(jobs) as pool:
        apply = partial(pool.map, chunksize=2) if jobs > 1 else map
        families = [fit_family(name, members, apply) for name, members in _by_family(runs).items()]
        variances = np.array(list(apply(price_variance, *_judged(families))))
        spread = field_errors([one.run for one in runs], apply)
    return _overlay(families, variances, spread, dropped, path, command)


def measured_runs(path: Path, models: Path | None = None) -> tuple[list[FitRun], Counter[str]]:
    """Runs of a table that may be fitted, and how many rows are left out by reason."""
    fits = steps.step_fits()
    runs: list[FitRun] = []
    dropped: Counter[str] = Counter()
    for row in table_rows(path, models):
        if row.get("stack", "") in fits.never:
            dropped[f"{row['stack']}: kept to check"] += 1
            continue
        run = run_of(row)
        if isinstance(run, Refused):
            dropped["cannot be expressed"] += 1
            continue
        strategy = run.problem.strategy
        if strategy.adapter != "none" or strategy.optimizer_offload or strategy.activation_offload:
            dropped["adapters and offload: kept to check"] += 1
            continue
        family = fits.family(run.problem.software.name)
        if run.step_time_s is None or run.row.get("status", "ok") == "oom":
            dropped["no step time"] += 1
        elif family is None:
            dropped[f"{run.problem.software.name}: of no family"] += 1
        else:
            kind = f"{family}-{'moe' if run.problem.model.moe else 'dense'}"
            group = f"{family}: {run.row['model']} on {run.problem.machine.gpu.name}"
            runs.append(FitRun(run, family, kind, group, run.step_time_s))
    return runs, dropped


def _by_family(runs: Iterable[FitRun]) -> dict[str, list[FitRun]]:
    found: dict[str, list[FitRun]] = {}
    for one in runs:
        found.setdefault(one.family, []).append(one)
    return found


def fit_family(name: str, runs: list[FitRun], apply: Callable[..., Iterable[Any]] = map) -> FamilyFit:
    """Fit the factors of a family, with and without each group, and predict each group with the factors of the others."""
    parameters = [Parameter(one.path, 1.0, one.low, one.high, one.spread) for one in steps.step_fits().parameters]
    measured = np.array([one.measured_s for one in runs])
    groups = np.array([one.group for one in runs])
    factors: dict[str, float] = {}
    found = FamilyFit(name, runs, np.zeros(0))
    for turn in range(ROUNDS if can_be_fitted(groups) else 1):
        near = _linear(runs, factors, [one.name for one in parameters], measured, groups, apply)
        if not turn:
            found.before = near.log_steps - np.log(measured)
        if not can_be_fitted(groups):
            return found
        factors = fit_steps(near, parameters, f"steps of {name}")
    found.factors, found.folds = factors, without_each(near, parameters)
    folds = [found.folds[one.group] for one in runs]
    times = list(apply(_one_step, [one.run for one in runs], folds))
    found.after = np.log(np.array(times) / measured)
    found.kept = is_better(found.after, found.before, groups)
    return found


def is_better(after: Floats, before: Floats, groups: NDArray[np.str_]) -> bool:
    """Whether the loss that a fit makes small is smaller on groups that it has not seen than with the sources."""
    return loss(after, groups) < loss(before, groups)


def _linear(
    runs: Sequence[FitRun],
    factors: Factors,
    names: Sequence[str],
    measured: Floats,
    groups: NDArray[np.str_],
    apply: Callable[..., Iterable[Any]],
) -> Linear:
    here = {name: factors.get(name, 1.0) for name in names}
    points = [here, *({**here, name: here[name] * SLOPE} for name in names)]
    table = np.log(np.array(list(apply(partial(_steps, points), [one.run for one in runs]))))
    slopes = (table[:, 1:] - table[:, :1]) / np.log(SLOPE)
    return Linear(table[:, 0], slopes, np.log([here[name] for name in names]), measured, groups)


def _steps(points: Sequence[Factors], run: Run) -> list[float]:
    return [float(value) for value in step_times_at(run.problem, points)]


def _one_step(run: Run, factors: Factors) -> float:
    return _steps([factors], run)[0]


def _judged(families: Sequence[FamilyFit]) -> tuple[list[Run], list[Factors]]:
    runs = [one.run for family in families for one in family.runs]
    return runs, [family.of(one.group) for family in families for one in family.runs]


def price_variance(run: Run, factors: Factors) -> float:
    """Variance of the logarithm of a step from prices and constants. [-]"""
    found = estimate(at_factors(run.problem, factors)).interval
    return sum(
        one.log_error**2 for one in found.contributions if one.name != MODEL_FORM and not one.name.startswith(FIELD)
    )


def _overlay(
    families: Sequence[FamilyFit],
    variances: Floats,
    spread: Mapping[str, tuple[int, float]],
    dropped: Counter[str],
    path: Path,
    command: str,
) -> Overlay:
    runs = [one for family in families for one in family.runs]
    errors = np.concatenate([family.errors for family in families])
    kinds, groups = np.array([one.kind for one in runs]), np.array([one.group for one in runs])
    wider = np.array([sum(spread.get(name, (0, 0.0))[1] ** 2 for name in _fields(one.run)) for one in runs])
    whole = variances + wider
    folds = errors_without_each(errors, whole, kinds, groups)
    residuals = {"all": _spread(errors, whole)}
    for kind in np.unique(kinds).tolist():
        alike = spread_rows(kinds, groups, kind)
        residuals[kind] = _spread(errors[alike], whole[alike])
    residuals |= {
        f"{steps.FIELD}{name}": Spread(count, -NORMAL_95 * sigma, 0.0, NORMAL_95 * sigma)
        for name, (count, sigma) in spread.items()
        if sigma > LEAST
    }
    own = np.array([folds[name] for name in groups.tolist()])
    half = NORMAL_95 * np.sqrt(whole + own**2)
    kept = {family.name: family for family in families if family.kept}
    return Overlay(
        name=steps.SHIPPED,
        gpu=steps.SOFTWARE,
        family=steps.STEPS,
        source="published-runs",
        version=path.name,
        command=command,
        constants={
            f"{name}.{number}": (value, "") for name, family in kept.items() for number, value in family.factors.items()
        },
        rows={"read": len(runs) + sum(dropped.values()), "used": len(runs), "groups": len(folds)},
        dropped=dropped,
        covered=_covered(runs),
        residuals=residuals,
        scores=dict(_scores(families, errors, half, kinds)),
        summary="factors on what software takes, fitted to whole steps; what steps are off beyond their prices",
        folds={
            name: {
                "runs": [one.run.run_id for one in runs if one.group == name],
                "constants": {
                    f"{family.name}.{number}": value for family in families for number, value in family.of(name).items()
                },
                "step_error": folds[name],
            }
            for name in folds
        },
        note=_note(families),
    )


def _note(families: Sequence[FamilyFit]) -> str:
    told = ["scores are of groups (a model on a GPU) that the factors and the widths were made without"]
    no_better = [family.name for family in families if family.folds and not family.kept]
    too_few = [family.name for family in families if not family.folds]
    told += [f"no better on groups not seen, so as sourced: {', '.join(no_better)}"] if no_better else []
    told += [f"too few groups to fit: {', '.join(too_few)}"] if too_few else []
    return "; ".join(told)


def _fields(run: Run) -> list[str]:
    return [name.removeprefix("strategy.") for name in run.assumed]


def _spread(errors: Floats, variances: Floats) -> Spread:
    """What is left of the errors beyond prices, even to both sides."""
    sigma = step_error(errors, variances)
    return Spread(len(errors), -NORMAL_95 * sigma, 0.0, NORMAL_95 * sigma)


def _covered(runs: Sequence[FitRun]) -> dict[str, tuple[float, float]]:
    ranges = {
        "gpus": [float(one.run.problem.machine.num_gpus) for one in runs],
        "step_s": [one.measured_s for one in runs],
        "sequence_length": [float(one.run.problem.sequence_length) for one in runs],
        "global_batch": [float(one.run.problem.global_batch) for one in runs],
    }
    return {name: (min(values), max(values)) for name, values in ranges.items()}


def _scores(
    families: Sequence[FamilyFit], errors: Floats, half: Floats, kinds: NDArray[np.str_]
) -> Iterator[tuple[str, Score]]:
    """Errors with the sources and cross-validated by family, then by kind with how many lie in their interval."""
    for family in families:
        yield f"{family.name}, as sourced", score(np.exp(family.before), np.ones(len(family.before)))
        if family.folds:
            yield f"{family.name}, cross-validated", score(np.exp(family.after), np.ones(len(family.after)))
    for kind in ("all", *np.unique(kinds).tolist()):
        chosen = np.ones(len(kinds), bool) if kind == "all" else kinds == kind
        predicted = np.exp(errors[chosen])
        low, high = predicted * np.exp(-half[chosen]), predicted * np.exp(half[chosen])
        yield f"{kind}, as used", score(predicted, np.ones(len(predicted)), low, high)
