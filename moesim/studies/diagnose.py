"""Why a measured step differs from its estimate: which term would have to be how far off to explain all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moesim.base.checked import number
from moesim.base.display import Shown
from moesim.estimator import estimate
from moesim.problem import Named, as_problem
from moesim.result import Estimate
from moesim.spec.calibration import NORMAL_95
from moesim.studies.measures import Utilisation, known_convention, measured_step, utilisations
from moesim.studies.references import Reference, references
from moesim.studies.suspicions import Suspicion, suspicions

LIKELY = NORMAL_95
"""Standard errors up to which an explanation by one term alone is likely: the 90 % interval. [-]"""
GAPS = 3
"""What is named of a gap: that many."""
NAMED = (0.5, 2.0)
"""Share of a gap that something must explain to be named alone. [-]"""
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
class Term:
    """A term of the estimated step. ``needed``: times what it would have to be for the measured step. [s, -]"""

    name: str
    predicted_s: float
    share: float
    needed: float | None


@dataclass(frozen=True)
class Diagnosis(Shown):
    """A measured step beside its estimate. Times in s.

    ``suspects``: terms whose own error may explain the gap; ``suspicions``: what the run may do otherwise than it is said
    to, priced; ``references``: published runs, where they were asked for.
    """

    estimate: Estimate
    measured_s: float
    gap_s: float
    inside: bool
    suspects: tuple[Suspect, ...]
    suspicions: tuple[Suspicion, ...] = ()
    utilisations: tuple[Utilisation, ...] = ()
    references: tuple[Reference, ...] = ()

    @property
    def verdict(self) -> str:
        """``normal`` inside the 90 % interval, else ``slow`` or ``fast``."""
        return "normal" if self.inside else "slow" if self.gap_s > 0 else "fast"

    @property
    def terms(self) -> tuple[Term, ...]:
        """Terms of the step, the largest first; they add up to it."""
        answer = self.estimate
        terms = sorted(((name, value) for name, value in answer.breakdown_s.items() if value), key=lambda one: -one[1])
        return tuple(
            Term(name, value, value / answer.step_time_s, needed if (needed := 1 + self.gap_s / value) > 0 else None)
            for name, value in terms
        )

    @property
    def top(self) -> tuple[Suspicion, ...]:
        """The three that come closest to the measured step."""
        return self.suspicions[:GAPS]

    @property
    def missing(self) -> str | None:
        """What is named as missing: what makes most nearly the measured step, if near enough; None where nothing does."""
        if self.inside:
            return None
        if self.top and NAMED[0] <= self.top[0].explains <= NAMED[1]:
            return self.top[0].name
        return next((one.name for one in self.suspects if one.likely), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "predicted_step_time_s": self.estimate.step_time_s,
            "low_s": self.estimate.low_s,
            "high_s": self.estimate.high_s,
            "predicted_tokens_per_s_per_gpu": self.estimate.tokens_per_s_per_gpu,
            "predicted_mfu": self.estimate.mfu,
            "binding": self.estimate.binding,
            "evidence": self.estimate.evidence,
            "measured_step_time_s": self.measured_s,
            "measured_tokens_per_s_per_gpu": self.estimate.tokens_per_s_per_gpu
            * self.estimate.step_time_s
            / self.measured_s,
            "gap_s": self.gap_s,
            "inside": self.inside,
            "verdict": self.verdict,
            "missing": self.missing,
            "top_gaps": [one.to_dict() for one in self.top],
            "healthy_breakdown_s": dict(self.estimate.breakdown_s),
            "terms": [dict(vars(one)) for one in self.terms],
            "conventions": [dict(vars(one)) for one in self.utilisations],
            "suspects": [dict(vars(one)) for one in self.suspects],
            "suspicions": [one.to_dict() for one in self.suspicions],
            "references": [one.to_dict() for one in self.references],
        }


def diagnose(problem: Named, measured: float | str, convention: str = "causal", reference: bool = False) -> Diagnosis:
    r"""Set a measured step beside its estimate and rank what may explain the gap.

    A family of prices whose standard error moves the logarithm of the step by e explains a gap g alone with g / e of its
    standard errors; a constant likewise. The factor follows from its elasticity.

    Parameters
    ----------
    problem
        What ran.
    measured
        Its step [s], or what was measured of it as text: see :func:`moesim.studies.measures.measured_step`.
    convention
        How the FLOPs of a measured rate or MFU are counted.
    reference
        Whether to look for published runs of the model.

    Raises
    ------
    SpecError
        Where what was measured is no step, or no convention is called so.
    """
    problem = as_problem(problem, "diagnose")
    known_convention(convention)
    if isinstance(measured, str):
        measured_s = measured_step(measured, problem, convention)
    else:
        measured_s = number("diagnose", "measured", measured)
    answer = estimate(problem)
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
    return Diagnosis(
        answer,
        measured_s,
        measured_s - answer.step_time_s,
        inside,
        tuple(suspects),
        suspicions(problem, answer.step_time_s, measured_s),
        utilisations(problem, answer, measured_s),
        references(problem) if reference else (),
    )


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
