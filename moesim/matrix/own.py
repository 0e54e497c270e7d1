"""The question of the matrix for one's own model, cluster and strategy."""

from __future__ import annotations

import numpy as np

from moesim.base.errors import SpecError
from moesim.matrix.ensemble import SKEW
from moesim.matrix.situation import Situation
from moesim.problem import Problem
from moesim.workload.routing import has_law


def own_situations(problem: Problem) -> list[Situation]:
    """The scenario as it is, and the same with some experts hotter than others where it has them all alike.

    Raises
    ------
    SpecError
        With one issue per rule that the scenario's own strategy breaks.
    """
    broken = problem.check()
    if broken:
        raise SpecError(problem.issue(one) for one in broken)
    strategy = problem.strategy
    candidate = problem.candidate(strategy)
    count = int(candidate.num_micro_batches)
    uneven = has_law(strategy.routing) or bool(np.any(np.asarray(strategy.rank_imbalance) > 1))
    even = Situation(problem.name, problem, strategy, count)
    if problem.model.moe is None:
        return [even]
    hot = strategy if uneven else strategy.replace(routing=SKEW, rank_imbalance=1.0)
    name = f"{problem.name}, {hot.routing} experts"
    return [even, Situation(name, problem, hot, count, skewed=True, common=even.common)]
