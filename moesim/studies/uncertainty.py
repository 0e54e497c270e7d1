"""What is not known of a step, by sampling: constants and prices drawn as columns of one batch, and what each is to blame for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base import checked
from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.cost.blocks import plan_blocks, repriced
from moesim.cost.perturb import with_factors
from moesim.cost.pipeline import step_times
from moesim.cost.plan import Plan
from moesim.cost.uncertainty import SampledErrors, families
from moesim.estimator import estimate
from moesim.evaluator import PIECE
from moesim.intervals import SPREADS, beyond_prices, doubted
from moesim.problem import Named, as_problem
from moesim.result import Constant, Estimate
from moesim.timeline.run import run_columns

Floats = NDArray[np.float64]

FEWEST, MOST = 100, 100_000
"""Samples: fewer say nothing of the ends, more say no more."""
MOVES = 1e-5
"""Logarithm of a step that a constant must move at two standard errors to be sampled. [-]"""
AGREES = 0.05
"""What the ends of both intervals may differ by and still agree. [-]"""


@dataclass(frozen=True)
class Input:
    """Something that is not known.

    ``spread``: standard error of its logarithm where it is one number, None for a family of prices, whose kernels and
    messages have their own; ``follows``: what that rests on. ``share``: of the variance of the logarithm of the step, by
    itself (first order). ``analytic_share``: the same from the estimate's interval. [-]
    """

    name: str
    kind: str
    spread: float | None
    follows: str
    share: float
    analytic_share: float


@dataclass(frozen=True)
class Uncertainty(Shown):
    """A step with what is not known drawn at random.

    ``steps``: one for each sample [s]; ``percentiles_s``: 5, 50 and 95 % of them. ``inputs`` by their share, the largest
    first; ``unexplained``: what no input has by itself, such as maxima of two. ``added_up``: what the fitted shares were
    together; above one, which few samples do, they are scaled down to one. [-]
    """

    answer: Estimate
    seed: int
    steps: Floats
    inputs: tuple[Input, ...]
    unexplained: float
    draws: Mapping[str, Floats]
    added_up: float

    @property
    def percentiles_s(self) -> dict[str, float]:
        """Steps that 5, 50 and 95 % of the samples stay below. [s]"""
        return {f"p{at}": float(np.percentile(self.steps, at)) for at in (5, 50, 95)}

    @property
    def log_error(self) -> float:
        """Standard deviation of the logarithm of the step. [-]"""
        return float(np.log(self.steps).std())

    @property
    def ratios(self) -> dict[str, float]:
        """Sampled over analytic ends of the 90 % interval. [-]"""
        found = self.percentiles_s
        return {"low": found["p5"] / self.answer.low_s, "high": found["p95"] / self.answer.high_s}

    @property
    def agrees(self) -> bool:
        """Whether both ends are those of the analytic interval but for :data:`AGREES`."""
        return all(abs(math.log(ratio)) <= AGREES for ratio in self.ratios.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        answer = self.answer
        return {
            "name": answer.name,
            "step_time_s": answer.step_time_s,
            "samples": len(self.steps),
            "seed": self.seed,
            "percentiles_s": self.percentiles_s,
            "mean_s": float(self.steps.mean()),
            "log_error": self.log_error,
            "analytic": {"low_s": answer.low_s, "high_s": answer.high_s, "log_error": answer.interval.log_error},
            "sampled_over_analytic": self.ratios,
            "agrees": self.agrees,
            "inputs": [dict(vars(one)) for one in self.inputs],
            "unexplained": self.unexplained,
            "shares_added_up": self.added_up,
            "binding": answer.binding,
            "evidence": answer.evidence,
            "holds": answer.interval.holds,
            "lacks": answer.interval.lacks,
        }


def uncertainty(problem: Named, samples: int = 2000, seed: int = 0) -> Uncertainty:
    r"""Draw what is not known of a step and run all draws as columns.

    A family of prices with residuals is off by :math:`e^{\sigma z}` with one z for all of its kernels or messages, and
    each its own :math:`\sigma`; a constant that no residuals hold by :math:`e^{\sigma z}` with the spread of its kind; so
    are what published steps were off beyond their prices, and the fields that nobody gave. A share that cannot exceed one
    is cut there.

    Parameters
    ----------
    problem
        The job.
    samples
        How many.
    seed
        Of the draws, a Latin hypercube: the same for the same seed.

    Notes
    -----
    First-order shares are squares of the coefficients of the logarithm of the step on Hermite polynomials of first and
    second degree in each z (sudret2008), fitted to the samples. Few samples make them too large, since what the fit takes
    for an input is in part chance; where they exceed one together they are scaled to it, and :attr:`Uncertainty.added_up`
    tells by how much.
    """
    problem = as_problem(problem, "uncertainty")
    samples, seed = checked.whole("uncertainty", "samples", samples), checked.whole("uncertainty", "seed", seed)
    if seed < 0:
        raise SpecError.single("--seed", "", f"{seed} is below zero", "0 or more")
    if not FEWEST <= samples <= MOST:
        raise SpecError.single("--samples", "", f"{samples} samples", f"{FEWEST} to {MOST:,}")
    answer = estimate(problem)
    plan = problem.plan()
    named = {constant.path: constant for constant in doubted(plan.machine, answer.constants)}
    known = families(plan.machine, plan.strategy.transport)
    whole = {name: error for name, error, _ in beyond_prices(plan.machine, problem.assumed) if error}
    moving = _moving(plan, known, list(named), {path: SPREADS[one.kind] for path, one in named.items()})
    names = [*moving, *whole]
    draws = dict(zip(names, hypercube(samples, len(names), seed).T, strict=True))
    spreads = {path: SPREADS[named[path].kind] for path in moving if path in named}
    pieces = range(0, samples, PIECE)
    steps = np.concatenate(
        [_steps(plan, {name: draws[name][at : at + PIECE] for name in moving}, spreads) for at in pieces]
    )
    for name, error in whole.items():
        steps = steps * np.exp(error * draws[name])
    shares, unexplained = first_order(np.log(steps), list(draws.values()))
    added_up = sum(shares)
    analytic = {one.name: one.share for one in answer.interval.contributions}
    inputs = []
    for name, share in zip(names, shares, strict=True):
        kind, spread, follows = _evidence(name, named, whole)
        label = (named[name].setting or name) if name in named else name
        inputs.append(Input(label, kind, spread, follows, share / max(added_up, 1.0), analytic.get(label, 0.0)))
    inputs.sort(key=lambda one: -one.share)
    return Uncertainty(answer, seed, steps, tuple(inputs), unexplained, draws, added_up)


def hypercube(samples: int, inputs: int, seed: int) -> Floats:
    """Standard normal draws, one of each n-th part of the distribution for each input. (samples, inputs) [-]"""
    generator = np.random.default_rng(seed)
    normal = NormalDist()
    table = [normal.inv_cdf((place + 0.5) / samples) for place in range(samples)]
    return np.array([generator.permutation(table) for _ in range(inputs)]).reshape(inputs, samples).T


def first_order(logs: Floats, draws: Sequence[Floats]) -> tuple[list[float], float]:
    """Share of the variance that each input has by itself, and what is left. [-]

    Parameters
    ----------
    logs
        Logarithms of the steps, one a sample. [-]
    draws
        Standard normal draws of each input. [-]
    """
    variance = float(logs.var())
    if not draws or variance < 1e-24:
        return [0.0] * len(draws), 0.0
    z = np.column_stack(draws)
    second = (z**2 - 1) / np.sqrt(2)
    basis = np.column_stack([np.ones(len(logs)), z, second])
    if len(logs) < 2 * basis.shape[1]:
        basis = basis[:, : 1 + z.shape[1]]
    fitted = np.linalg.lstsq(basis, logs, rcond=None)[0][1:]
    parts = fitted.reshape(-1, z.shape[1]) ** 2 / variance
    shares = [float(share) for share in parts.sum(axis=0)]
    return shares, max(0.0, 1 - sum(shares))


def _moving(plan: Plan, known: Sequence[str], paths: Sequence[str], spreads: Mapping[str, float]) -> list[str]:
    """Families and constants that move the step at two standard errors to either side, one at a time in a batch."""
    names = [*known, *paths]
    columns = 2 * len(names) + 1
    draws = {}
    for place, name in enumerate(names):
        draws[name] = np.zeros(columns)
        draws[name][1 + 2 * place : 3 + 2 * place] = (-2.0, 2.0)
    steps = np.log(_steps(plan, draws, spreads))
    moved = np.abs(steps[1:] - steps[0]).reshape(-1, 2).max(axis=1)
    return [name for name, move in zip(names, moved, strict=True) if move > MOVES]


def _steps(plan: Plan, draws: Mapping[str, Floats], spreads: Mapping[str, float]) -> Floats:
    """Step for each column of draws of families and constants. [s]"""
    columns = len(next(iter(draws.values()))) if draws else 1
    factors = {path: _bounded(plan, path, np.exp(spread * draws[path])) for path, spread in spreads.items()}
    errors = SampledErrors(plan.machine, plan.strategy.transport, {}, columns, draws=draws)
    sampled = replace(plan, machine=with_factors(plan.machine, factors), shape=(columns,), errors=errors)
    times = step_times(sampled, repriced(plan_blocks(plan), sampled))
    return np.asarray(run_columns(times.graph.graph, times.durations, times.delays)[0])


def _bounded(plan: Plan, path: str, factor: Floats) -> Floats:
    """A factor that leaves a share a share. [-]"""
    sourced = plan.machine.provenance.get(path)
    most = type(sourced).most if sourced is not None else math.inf
    return factor if sourced is None or math.isinf(most) else np.minimum(factor, most / sourced.value)


def _evidence(name: str, named: Mapping[str, Constant], whole: Mapping[str, float]) -> tuple[str, float | None, str]:
    """Kind, spread, and what it follows from."""
    if name in named:
        kind = named[name].kind
        return kind, SPREADS[kind], f"a {kind} constant that no calibration covers"
    if name in whole:
        given = "a field that nobody gave" if name.startswith("field ") else "published steps, beyond their prices"
        return ("assumed" if given.startswith("a field") else "calibrated"), whole[name], given
    return "calibrated", None, "residuals of its calibration, by regime and size"
