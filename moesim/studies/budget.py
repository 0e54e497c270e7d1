"""What a whole training run takes: days, GPU-hours, money and energy, and what moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.checked import number, optional
from moesim.base.display import Shown
from moesim.problem import Named, as_problem
from moesim.studies.scaling import Point, scaled

HOUR, DAY = 3600.0, 86400.0
OVERHEAD = 1.1
"""Power of the facility over that of its machines, as Google published it for 2021 (google-pue-2021). [-]"""


@dataclass(frozen=True)
class Cost:
    """A run of a number of tokens on one size of cluster.

    ``seconds`` with ``low_s`` and ``high_s`` from the interval of a step; ``money`` in the currency of the price;
    ``energy_j`` of the GPUs at their power limit with the overhead of the facility, without CPUs, NICs and fans; ``meets``: whether it is done by the deadline.
    """

    point: Point
    seconds: float
    low_s: float
    high_s: float
    gpu_hours: float
    money: float | None
    energy_j: float
    meets: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, money in the currency of the price."""
        own = {name: getattr(self, name) for name in Cost.__dataclass_fields__ if name not in ("point", "seconds")}
        return self.point.to_dict() | {"time_s": self.seconds} | own


@dataclass(frozen=True)
class Budget(Shown):
    """A run on several sizes of cluster, and how its price moves with what is known least."""

    tokens: float
    goodput: float
    price_per_gpu_hour: float | None
    deadline_s: float | None
    costs: tuple[Cost, ...]
    refused: tuple[Point, ...]

    @property
    def sensitivity(self) -> dict[str, float]:
        """Change of the money, or of the GPU-hours without a price, where one thing is a tenth more. [-]"""
        return {"mfu": 1 / 1.1 - 1, "goodput": 1 / 1.1 - 1, "tokens": 0.1} | (
            {"price_per_gpu_hour": 0.1} if self.price_per_gpu_hour is not None else {}
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = {name: getattr(self, name) for name in ("tokens", "goodput", "price_per_gpu_hour", "deadline_s")}
        return plain | {
            "costs": [cost.to_dict() for cost in self.costs],
            "refused": [point.to_dict() for point in self.refused],
            "sensitivity": self.sensitivity,
        }


def budget(
    problem: Named,
    tokens: float,
    nodes: Sequence[int] | None = None,
    goodput: float = 1.0,
    price_per_gpu_hour: float | None = None,
    deadline_s: float | None = None,
    measured_s: float | None = None,
) -> Budget:
    r"""What training on a number of tokens takes.

    .. math:: T = \frac{\text{tokens}}{\text{tokens a step}} \cdot \frac{t_\text{step}}{\text{goodput}}

    Parameters
    ----------
    problem
        The job.
    tokens
        Tokens to train on. [-]
    nodes
        Numbers of nodes to compare at the same global batch; without any, those of the job.
    goodput
        Share of the time in which the job makes progress, as ``moesim checkpoint`` tells it. [-]
    price_per_gpu_hour, deadline_s
        Price of a GPU for an hour [currency]; time by which it must be done [s].
    measured_s
        A step as measured, in place of the estimates. [s]

    Raises
    ------
    SpecError
        Where a number is not above zero and finite, or the goodput more than one.
    """
    problem = as_problem(problem, "budget")
    tokens, goodput = number("budget", "tokens", tokens), number("budget", "goodput", goodput, most=1)
    price_per_gpu_hour = optional("budget", "price_per_gpu_hour", price_per_gpu_hour)
    deadline_s, measured_s = optional("budget", "deadline_s", deadline_s), optional("budget", "measured_s", measured_s)
    points = scaled(problem, nodes or [problem.scenario.cluster.count])
    power = problem.machine.provenance["gpu.power"].value
    costs = []
    for point in points:
        answer = point.answer
        if answer is None:
            continue
        steps = tokens / (point.global_batch * problem.sequence_length)
        step = (answer.step_time_s, answer.low_s, answer.high_s) if measured_s is None else (measured_s,) * 3
        seconds, low, high = (steps * t / goodput for t in step)
        hours = point.gpus * seconds / HOUR
        costs.append(
            Cost(
                point,
                seconds,
                low,
                high,
                hours,
                None if price_per_gpu_hour is None else hours * price_per_gpu_hour,
                point.gpus * power * seconds * OVERHEAD,
                None if deadline_s is None else seconds <= deadline_s,
            )
        )
    refused = tuple(point for point in points if point.answer is None)
    return Budget(tokens, goodput, price_per_gpu_hour, deadline_s, tuple(costs), refused)
