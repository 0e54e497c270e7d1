"""Steps of a problem with factors on what its software is said to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.cost.columns import stacked
from moesim.cost.from_spec import build_machine
from moesim.evaluator import step_columns
from moesim.problem import Problem
from moesim.spec import steps
from moesim.spec.load import ScenarioSpecs, load_specs

Floats = NDArray[np.floating[Any]]


def step_times_at(problem: Problem, points: Sequence[Mapping[str, float]]) -> Floats:
    """Step of a problem at each of some points: factors on the numbers of its software by path. [s]

    A factor of 1 is the number as its source has it, also where a calibration of steps is shipped.
    """
    specs = load_specs(problem.scenario)
    machines = [build_machine(_scaled(specs, point)) for point in points]
    plan = replace(problem.plan(), machine=stacked(machines), shape=(len(machines),))
    return np.broadcast_to(step_columns(plan), (len(machines),))


def at_factors(problem: Problem, factors: Mapping[str, float], step_error: float | None = None) -> Problem:
    """Return a problem with factors on the numbers of its software.

    Parameters
    ----------
    factors
        By path, on the number as its source has it. [-]
    step_error
        Standard error of the logarithm of a step beyond that of its prices; left out, the one that is shipped. [-]
    """
    specs = _scaled(load_specs(problem.scenario), factors)
    machine = build_machine(specs)
    if step_error is not None:
        machine = replace(machine, step_errors={**machine.step_errors, steps.STEPS: step_error})
    return replace(problem, machine=machine, software=specs.software)


def judged(problem: Problem, run_id: str) -> Problem:
    """Return a published run as a calibration of steps that has not seen its group prices it; others as they are."""
    one = steps.used(load_specs(problem.scenario).calibrations)
    if one is None:
        return problem
    fold = next((fold for fold in one.folds.values() if run_id in fold.runs), None)
    if fold is None:
        return problem
    factors = {name.partition(".")[2]: factor for name, factor in fold.constants.items()}
    return at_factors(problem, factors, fold.step_error)


def _scaled(specs: ScenarioSpecs, factors: Mapping[str, float]) -> ScenarioSpecs:
    """The specs with factors in place of those of the calibration that they have."""
    one = steps.used(specs.calibrations)
    fixed = {path.removeprefix("software.") for path in specs.scenario.overrides if path.startswith("software.")}
    laid = {} if one is None else steps.factors_of(one, specs.software.name)
    wanted = {path: factors.get(path, 1.0) / laid.get(path, 1.0) for path in {*factors, *laid} if path not in fixed}
    changed = {path: factor for path, factor in wanted.items() if factor != 1}
    if not changed:
        return specs
    source = "" if one is None else one.source
    return replace(specs, software=steps.scaled(specs.software, changed, source or "steps", "a fit of steps"))
