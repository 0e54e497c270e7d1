"""Why a measured step differs from its estimate: which term would have to be how far off to explain all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.spec.calibration import NORMAL_95

LIKELY = NORMAL_95
"""Standard errors up to which an explanation by one term alone is likely: the 90 % interval. [-]"""
ADVICE = {
    "host": "trace one step: gaps between kernels on the GPU, and a CPU thread that is busy all the time",
    "transport": "time dispatch and combine alone (moesim collective alltoall gives what to expect)",
    "collectives-net": "run nccl-tests over the same nodes: moesim collective ... --measured says whether they are sick",
    "collectives-node": "run nccl-tests on one node: moesim collective ... --measured says whether it is sick",
    "gemm": "compare the GEMMs of a trace with moesim kernel gemm; look at clocks and power (nvidia-smi -q -d CLOCK)",
    "grouped-gemm": "compare the expert GEMMs of a trace with moesim kernel grouped-gemm; look at the rows of each expert",
    "attention": "compare the attention kernel of a trace with moesim kernel attention: another kernel may be in use",
    "memory": "norms, activations and casts: see in a trace whether they are fused",
}
"""What to look at, by the beginning of the name of a term."""


@dataclass(frozen=True)
class Suspect:
    """A term that could explain the gap alone.

    ``factor``: how many times its price, or constant, the measured step asks for, to first order; None where no factor
    does. ``errors``: how many of its standard errors that is. [-]
    """

    name: str
    factor: float | None
    errors: float
    likely: bool
    look: str


@dataclass(frozen=True)
class Diagnosis:
    """A measured step beside its estimate. Times in s."""

    estimate: Estimate
    measured_s: float
    gap_s: float
    inside: bool
    suspects: tuple[Suspect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "predicted_step_time_s": self.estimate.step_time_s,
            "low_s": self.estimate.low_s,
            "high_s": self.estimate.high_s,
            "measured_step_time_s": self.measured_s,
            "gap_s": self.gap_s,
            "inside": self.inside,
            "healthy_tokens_per_s_per_gpu": self.estimate.tokens_per_s_per_gpu,
            "healthy_breakdown_s": dict(self.estimate.breakdown_s),
            "suspects": [dict(vars(one)) for one in self.suspects],
        }


def diagnose(problem: Problem, measured_s: float) -> Diagnosis:
    r"""Set a measured step beside its estimate and rank what may explain the gap.

    A family of prices whose standard error moves the logarithm of the step by e explains a gap g alone with g / e of its
    standard errors; a constant likewise. The factor follows from its elasticity.

    Parameters
    ----------
    problem
        What ran.
    measured_s
        Its step. [s]
    """
    answer = estimate(problem, measured_s=measured_s)
    gap = math.log(measured_s / answer.step_time_s)
    elasticities = {constant.setting or constant.path: constant.elasticity for constant in answer.constants}
    suspects = []
    for one in answer.interval.contributions:
        if one.log_error <= 0:
            continue
        errors = abs(gap) / one.log_error
        factor = _price_factor(answer, one.name, measured_s) if one.family else _ratio(gap, elasticities.get(one.name))
        suspects.append(Suspect(one.name, factor, errors, errors <= LIKELY, advice(one.name)))
    suspects.sort(key=lambda one: one.errors)
    low, high = answer.low_s or answer.step_time_s, answer.high_s or answer.step_time_s
    inside = low <= measured_s <= high
    return Diagnosis(answer, measured_s, measured_s - answer.step_time_s, inside, tuple(suspects))


def _ratio(gap: float, elasticity: float | None) -> float | None:
    """Factor on a constant that explains a gap of the logarithm of the step."""
    return math.exp(gap / elasticity) if elasticity and abs(gap / elasticity) < math.log(1e3) else None


PARTS = {
    "gemm": ("gemm",),
    "grouped-gemm": ("grouped_gemm",),
    "attention": ("attention",),
    "memory": ("memory_bound", "optimizer"),
    "transport": ("ep",),
    "collectives": ("tp", "cp", "pp", "dp"),
}
"""Parts of the breakdown that a family of prices makes."""


def _price_factor(answer: Estimate, name: str, measured_s: float) -> float | None:
    """Factor on all prices of a family, from its part of the walked rank."""
    parts = next(parts for start, parts in PARTS.items() if name == start or name.startswith(f"{start}-"))
    now = sum(answer.breakdown_s[part] for part in parts)
    needed = now + measured_s - answer.step_time_s
    return needed / now if now > 0 and needed > 0 else None


def advice(name: str) -> str:
    """What to look at for a term."""
    words = ("host" if ".host." in name or name.startswith("host") else name.removeprefix("gpu.kernels.")).split("_")[0]
    found = (text for start, text in ADVICE.items() if words.startswith(start))
    return next(found, "moesim explain shows where it comes from")
