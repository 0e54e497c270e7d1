"""Step times and peaks of many strategies at once: the formulas of one estimate, over arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.constraints import legal_mask
from moesim.cost.blocks import plan_blocks
from moesim.cost.memory import plan_memory
from moesim.cost.pipeline import step_times
from moesim.cost.plan import Plan
from moesim.problem import Named, Problem, as_problem
from moesim.timeline.run import run_columns
from moesim.workload.strategy import DEGREES, FIELDS, Strategy

PIECE = 1024
"""Columns that are run at a time, so that they stay in cache."""


@dataclass(frozen=True)
class Evaluation:
    """One entry per strategy, in their order.

    ``step_time_s`` and ``peak_bytes`` are NaN where the strategy is not legal; ``fits``: legal, and the peak is within
    the capacity. (n,) [s, B]
    """

    step_time_s: NDArray[np.float64]
    peak_bytes: NDArray[np.float64]
    legal: NDArray[np.bool_]
    fits: NDArray[np.bool_]


def evaluate(problem: Named, strategies: Sequence[Strategy]) -> Evaluation:
    """Step time and peak memory of each strategy.

    Strategies that share pipeline shape, micro-batches and methods are evaluated together. The numbers are those of
    :func:`moesim.estimate`.
    """
    problem = as_problem(problem, "evaluate")
    times = np.full(len(strategies), np.nan)
    peaks = np.full(len(strategies), np.nan)
    for piece, plan in _plans(problem, strategies):
        times[piece], peaks[piece] = plan_columns(plan)
    capacity = problem.machine.gpu.memory_capacity
    return Evaluation(times, peaks, ~np.isnan(times), np.nan_to_num(peaks, nan=np.inf) <= capacity)


def step_times_of(problem: Problem, strategies: Sequence[Strategy]) -> NDArray[np.float64]:
    """Step time of each strategy, as :func:`evaluate` has it; NaN where it is not legal. (n,) [s]"""
    times = np.full(len(strategies), np.nan)
    for piece, plan in _plans(problem, strategies):
        times[piece] = step_columns(plan)
    return times


def _plans(problem: Problem, strategies: Sequence[Strategy]) -> Iterator[tuple[NDArray[np.int64], Plan]]:
    """Indices of legal strategies, and the plan that has them as columns."""
    for members in _groups(problem, strategies):
        for start in range(0, len(members), PIECE):
            piece = members[start : start + PIECE]
            yield piece, _together(problem, [strategies[index] for index in piece])


def _groups(problem: Problem, strategies: Sequence[Strategy]) -> list[NDArray[np.int64]]:
    """Indices of the legal strategies, those of one shape together."""
    by_shape: dict[tuple[Any, ...], list[int]] = {}
    shared = [name for name in FIELDS if name not in DEGREES]
    for index, strategy in enumerate(strategies):
        by_shape.setdefault(tuple(getattr(strategy, name) for name in shared), []).append(index)
    groups = []
    for members in by_shape.values():
        indices = np.array(members)
        stacked = _stacked([strategies[index] for index in members])
        candidate = problem.candidate(stacked)
        legal = np.broadcast_to(legal_mask(candidate), indices.shape)
        micro_batches = np.broadcast_to(candidate.num_micro_batches, indices.shape)
        for count in np.unique(micro_batches[legal]):
            group = indices[legal & (micro_batches == count)]
            if not problem.check(strategies[int(group[0])]):  # names, layout, schedule: the same for the whole group
                groups.append(group)
    return groups


def _stacked(strategies: list[Strategy]) -> Strategy:
    return strategies[0].replace(
        **{name: np.array([float(getattr(strategy, name)) for strategy in strategies]) for name in DEGREES}
    )


def _together(problem: Problem, strategies: list[Strategy]) -> Plan:
    return replace(problem.plan(strategies[0]), strategy=_stacked(strategies), shape=(len(strategies),))


def step_columns(plan: Plan) -> NDArray[np.float64]:
    """Step time for each column of a plan. [s]"""
    times = step_times(plan, plan_blocks(plan))
    return run_columns(times.graph.graph, times.durations, times.delays)[0]


def plan_columns(plan: Plan) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Step time and peak memory of the largest rank, for each column of a plan. [s, B]"""
    return step_columns(plan), peak_columns(plan)


def peak_columns(plan: Plan) -> NDArray[np.float64]:
    """Peak memory of the largest rank, for each column of a plan. [B]"""
    return np.asarray(np.max([np.broadcast_to(rank.peak, plan.shape) for rank in plan_memory(plan)], axis=0))
