"""What is searched: layouts on one machine, or on each of several."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.checked import optional
from moesim.base.errors import Collector, SpecError
from moesim.problem import Problem
from moesim.studies.search.space import Space, Vary, space

HOUR = 3600.0
MACHINE = "cluster"
"""Field of a scenario, alone or with a part of it behind a dot, that makes another machine."""

Price = float | Mapping[str, float]
"""Of a GPU for an hour: one for all, or one for each kind of node. [currency]"""


@dataclass(frozen=True)
class Job:
    """One machine with the space of layouts on it.

    ``changes``: what makes it another machine than that of the scenario; ``price``: of one of its GPUs for an hour. [currency]
    """

    changes: Mapping[str, Any]
    space: Space
    price: float | None = None

    @property
    def problem(self) -> Problem:
        """The job on this machine."""
        return self.space.problem

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step. [-]"""
        return self.problem.global_batch * self.problem.sequence_length

    def cost_per_token(self, step_time_s: float) -> float:
        """Money for a token. [currency]"""
        if self.price is None:
            raise ValueError("a machine without a price has no costs")
        return step_time_s * self.problem.machine.num_gpus * self.price / HOUR / self.tokens_per_step


def jobs(problem: Problem, vary: Vary | None, price: Price | None = None) -> tuple[Job, ...]:
    """Every machine that is varied, with its space of layouts.

    Parameters
    ----------
    problem
        The job, on the machine of its scenario.
    vary
        As for :func:`moesim.search`; ``cluster``, ``cluster.node``, ``cluster.count`` and ``cluster.fabric`` make machines, each with
        what ``auto`` means there.
    price
        Of a GPU for an hour. [currency]

    Raises
    ------
    SpecError
        With one issue for each machine or value that does not exist, and for each machine without a price.
    """
    machines = {path: values for path, values in (vary or {}).items() if path.partition(".")[0] == MACHINE}
    layouts = {path: values for path, values in (vary or {}).items() if path not in machines}
    problems = Collector()
    for path, values in machines.items():
        if isinstance(values, str) or not values:
            problems.add(
                f"--vary {path}",
                "",
                "needs a list of values",
                f"write for example --vary {path}={_SHOWN.get(path, '4')}",
            )
    problems.raise_if_any()
    found: list[Job] = []
    for values in itertools.product(*machines.values()):
        changes = dict(zip(machines, values, strict=True))
        try:
            changed = problem.with_changes(changes, "--vary") if changes else problem
            found.append(Job(changes, space(changed, layouts or None)))
        except SpecError as error:
            problems.extend(issue for issue in error.issues if issue not in problems.issues)
    problems.raise_if_any()
    return _priced(found, price)


_SHOWN = {"cluster": "hgx-h100:32,hgx-h100:64", "cluster.node": "hgx-h100,hgx-h200", "cluster.count": "32,64"}


def _priced(found: Sequence[Job], price: Price | None) -> tuple[Job, ...]:
    """The jobs with the price of their GPUs."""
    for one in price.values() if isinstance(price, Mapping) else [price]:
        optional("--price", "", one)
    if not isinstance(price, Mapping):
        return tuple(Job(job.changes, job.space, price) for job in found)
    nodes = list(dict.fromkeys(job.problem.scenario.cluster.node for job in found))
    problems = Collector()
    for name in nodes:
        if name not in price:
            problems.add("--price", "", f"has none for {name}", f"write for example --price {name}=2.5/h")
    for name in price:
        if name not in nodes:
            problems.add("--price", "", f"no machine has the node '{name}'", f"known: {', '.join(nodes)}")
    problems.raise_if_any()
    return tuple(Job(job.changes, job.space, price[job.problem.scenario.cluster.node]) for job in found)
