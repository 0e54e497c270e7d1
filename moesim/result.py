"""The answer to one question: data only; ``moesim.report`` shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moesim.base.display import Shown
from moesim.base.errors import Violation
from moesim.cost.uncertainty import Outside
from moesim.timeline.run import Run
from moesim.timeline.step import StepGraph

BREAKDOWN = (
    "gemm",
    "grouped_gemm",
    "attention",
    "memory_bound",
    "ep",
    "tp",
    "cp",
    "pp",
    "dp",
    "optimizer",
    "host",
    "bubble",
    "other",
)
"""Keys of ``breakdown_s``, always all of them."""
EXTRA = ("pcie",)
"""Further keys, where a method has such a part: copies to and from the host that nothing hides."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak memory by class on each pipeline rank. [B]

    ``peak_phase`` is the phase of the step (forward, loss, backward, optimizer) that the peak falls into. ``peak_bytes`` must fit: tensors (``allocated``), the allocator's slack (``reserved``), CUDA context, NCCL.
    ``host_bytes_per_node`` stand in the memory of a host, whose GPUs are all taken for the fullest rank; data has it
    where something does.
    """

    peak_bytes: float
    allocated_peak_bytes: float
    reserved_peak_bytes: float
    peak_stage: int
    peak_phase: str
    capacity_bytes: float
    stages: tuple[dict[str, float], ...]
    host_bytes_per_node: float = 0.0


@dataclass(frozen=True, repr=False)
class Timeline(Shown):
    """The run whose end is the step time: tasks on the lanes of every pipeline rank."""

    graph: StepGraph
    run: Run

    def __repr__(self) -> str:
        return f"Timeline({len(self.run.start)} tasks on {self.graph.num_ranks} ranks, {self.run.makespan:.4g} s)"


@dataclass(frozen=True)
class Constant:
    """A constant of the machine and how much the step time depends on it.

    ``elasticity``: per cent of step time for one per cent of the constant. [-] ``setting``: its path in the specs, as
    ``--set`` takes it (without ``constants.`` for a transport). ``by_hand``: an override has set it.
    """

    path: str
    setting: str
    value: float
    elasticity: float
    kind: str
    source: str
    by_hand: bool = False


@dataclass(frozen=True)
class Contribution:
    """What one family of prices, or one constant that no family covers, adds to the interval.

    ``log_error``: standard error of the logarithm of the step time. ``share`` of the variance. [-]
    """

    name: str
    log_error: float
    share: float
    evidence: str
    family: bool


@dataclass(frozen=True)
class Interval:
    """90 % interval of a step time [s], what it is made of, and what it says nothing about.

    ``outside``: prices outside of what their calibration covers, where the spread is taken wider; ``uncalibrated``:
    families of prices without measurements on this machine.
    """

    low_s: float
    high_s: float
    log_error: float
    contributions: tuple[Contribution, ...]
    outside: tuple[Outside, ...]
    uncalibrated: tuple[str, ...]
    holds: str
    lacks: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data; contributions by their share of the variance."""
        return vars(self) | {
            "contributions": [dict(vars(one)) for one in self.contributions],
            "uncalibrated": list(self.uncalibrated),
            "outside": [dict(vars(one)) for one in self.outside],
        }


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """How long one training step takes, where the time goes, whether it fits.

    Times in s, memory in B, rates per GPU; ``breakdown_s`` adds up to ``step_time_s`` along the pipeline rank
    ``walked_stage``, which finishes last; ``busy_s`` tells how long each pipeline rank computes. ``low_s`` and ``high_s``
    are the ends of the 90 % interval; ``interval`` says what it is made of. ``routing``: rows of the hottest rank over
    the mean, and the share of all rows that a capacity drops where it is known; None in a dense model. ``sustained_clock``:
    what the power limit leaves of the clock of the tensor cores; None where nobody measured what the GPU draws. [-]
    """

    name: str
    feasible: bool
    violations: tuple[Violation, ...]
    step_time_s: float
    tokens_per_s_per_gpu: float
    model_flop_per_token: float
    flops_convention: str
    tflop_per_s_per_gpu: float
    mfu: float
    bubble_fraction: float
    walked_stage: int
    busy_s: tuple[float, ...]
    sustained_clock: float | None
    breakdown_s: dict[str, float]
    exposed_s: dict[str, float]
    low_s: float
    high_s: float
    interval: Interval
    memory: MemoryEstimate
    binding: dict[str, Any]
    evidence: str
    assumed: tuple[str, ...]
    layout: str
    routing: dict[str, float | None] | None
    measured: dict[str, Any] | None
    strategy: dict[str, Any]
    constants: tuple[Constant, ...] = field(repr=False)
    timeline: Timeline = field(repr=False, compare=False)

    def __repr__(self) -> str:
        fits = "fits" if self.feasible else "does not fit"
        return (
            f"Estimate({self.name!r}: {self.step_time_s:.4g} s, {self.tflop_per_s_per_gpu:.0f} TFLOP/s per GPU, {fits})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON; without the timeline and the constants."""
        plain = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("timeline", "constants")
        }
        plain["violations"] = [
            {"rule": violation.rule, "message": violation.message, "legal": violation.legal}
            for violation in self.violations
        ]
        memory = {name: getattr(self.memory, name) for name in MemoryEstimate.__dataclass_fields__}
        if not self.memory.host_bytes_per_node:
            del memory["host_bytes_per_node"]
        plain["memory"] = memory | {"stages": [dict(stage) for stage in self.memory.stages]}
        plain["assumed"] = list(self.assumed)
        plain["interval"] = self.interval.to_dict()
        plain["busy_s"] = list(self.busy_s)
        return plain
