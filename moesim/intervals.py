"""The interval of an answer: standard errors of prices and constants, carried to the step, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from moesim.cost.certainty import GRADES
from moesim.cost.machine import Machine
from moesim.cost.regimes import KERNELS
from moesim.cost.uncertainty import Outside
from moesim.reading import GRADE_OF_KIND
from moesim.result import Constant, Contribution, Interval
from moesim.spec.calibration import NORMAL_95
from moesim.spec.steps import STEPS

SPREADS = {
    "measured": 0.05,  # fitted elsewhere, its residuals not kept: runs and machines of one kind differ by 3 to 5 %
    "datasheet": 0.05,  # a rate is what the silicon can do; clocks and sustained bandwidths end a few per cent off
    "paper": 0.15,  # published for another machine or another version of the software
    "derived": 0.2,  # worked out from other numbers or from whole steps: 90 % within a factor of 1.4
    "assumed": 0.5,  # a guess: 90 % within a factor of 2.3
}
"""Standard error of the logarithm of a constant that no calibration covers, by its kind of evidence. Assumed. [-]"""

MATTERS = 0.05
"""Share of the variance from which a family or a constant decides the evidence grade."""
SET_MATTERS = 0.02
"""Elasticity from which a number that was set by hand decides it: it is taken at its word, without a spread."""
LISTED = 0.005
"""Share of the variance below which constants are added up."""

HOLDS = "errors of the prices of kernels and messages, and of the constants that no measurements cover"
HOLDS_STEPS = (
    ", and what published steps of such software were off beyond them: overlap, host, clocks, slow nodes; fields that "
    "nobody gave"
)
LACKS = (
    "errors of the model's structure: what overlaps, what the software does beside it, uneven routing, slow nodes, "
    "numbers set by hand"
)
LACKS_STEPS = (
    "errors of the model's structure that published steps do not show: uneven routing that was not given, sick nodes, "
    "numbers set by hand"
)
MODEL_FORM = "software and overlap"
"""What stands for all that prices do not say of a step."""
FIELD = "field "
"""Beginning of the name of a contribution of a field that nobody gave."""

KERNEL_WORDS = (
    ("gpu.kernels.grouped_gemm", "grouped-gemm"),
    ("gpu.kernels.gemm", "gemm"),
    ("gpu.kernels.attention", "attention"),
    ("gpu.kernels.memory", "memory"),
    ("gpu.kernels.quantize", "memory"),
)
UNMEASURED = ("attention_backward", "-wgrad")
"""Constants of passes that no calibration has measured, by a part of their name."""


def covered_by(path: str) -> tuple[str, ...]:
    """Families whose residuals, all together, hold the error of a constant; none where nothing can."""
    if any(word in path for word in UNMEASURED) or path.startswith(("host.", "gpu.power.", "links.collective_sms")):
        return ()
    for prefix, family in KERNEL_WORDS:
        if path.startswith(prefix):
            return (family,)
    if path.startswith("transports."):
        return (f"transport-{path.split('.')[1]}",)
    if path.startswith("links."):
        name = path.removeprefix("links.")
        across = name.startswith("nic_") or {"net", "two"} & set(name.removeprefix("fits.").split("-"))
        return ("collectives-net" if across else "collectives-node",)
    return KERNELS if path.startswith("gpu.") else ()


def interval(
    machine: Machine,
    step_time: float,
    raised: Mapping[str, tuple[float, float]],
    needs: tuple[Constant, ...],
    outside: tuple[Outside, ...] = (),
    uncalibrated: tuple[str, ...] = (),
    assumed: tuple[str, ...] = (),
) -> Interval:
    r"""The 90 % interval of a step, log-normal around the estimate.

    .. math::

        \sigma^2 = \sum_f \ln^2 \frac{T(f)}{T} + \sum_c (\epsilon_c \sigma_c)^2 + \sigma_s^2 + \sum_a \sigma_a^2,
        \qquad T e^{\pm 1.645 \sigma}

    ``T(f)`` is the step with all prices of the family f raised by the standard error of their regimes: they are off
    together. Families, and constants c with elasticity :math:`\epsilon_c` that no family covers, are off independently.
    ``sigma_s`` is what published steps were off beyond that, ``sigma_a`` what a field that nobody gave may move.

    Parameters
    ----------
    machine
        As it is, for the residuals.
    step_time
        T. [s]
    raised
        For each family T(f), and the step with only those prices raised that are outside of what was measured. [s]
    needs
        Constants with their elasticities.
    outside, uncalibrated
        Prices outside of what was measured; families that the step uses and nobody measured on this machine, whose
        constants count one by one.
    assumed
        Fields that nobody gave.
    """
    terms: list[tuple[str, float, str]] = []
    for name, (everywhere, beyond) in raised.items():
        error = math.log(everywhere / step_time)
        share = math.log(beyond / step_time) / error if error else 0.0
        terms.append((name, error, _grade(machine, name, share)))
    for constant in doubted(machine, needs):
        error = abs(constant.elasticity) * SPREADS[constant.kind]
        terms.append((constant.setting or constant.path, error, GRADE_OF_KIND[constant.kind]))
    terms += beyond_prices(machine, assumed)
    variance = sum(error**2 for _, error, _ in terms)
    sigma = math.sqrt(variance)
    found = [
        Contribution(name, error, error**2 / variance if variance else 0.0, grade, name in raised)
        for name, error, grade in terms
        if error
    ]
    found.sort(key=lambda one: -one.share)
    factor = math.exp(NORMAL_95 * sigma)
    ends, told = (step_time / factor, step_time * factor), (HOLDS, LACKS)
    if machine.step_errors:
        told = (HOLDS + HOLDS_STEPS, LACKS_STEPS)
    return Interval(*ends, sigma, tuple(found), outside, uncalibrated, *told)


def doubted(machine: Machine, needs: tuple[Constant, ...]) -> tuple[Constant, ...]:
    """Constants whose own spread counts: those that nobody set by hand and no residuals of the machine hold."""
    found = []
    for constant in needs:
        families = covered_by(constant.path)
        held = bool(families) and all(family in machine.residuals for family in families)
        if not constant.by_hand and not held:
            found.append(constant)
    return tuple(found)


def beyond_prices(machine: Machine, assumed: tuple[str, ...]) -> list[tuple[str, float, str]]:
    """Errors of whole steps beyond those of their prices, and of each field that nobody gave, in logarithms. [-]"""
    known = machine.step_errors
    if not known:
        return []
    names = [path.removeprefix("strategy.") for path in assumed]
    fields = [(f"{FIELD}{name}", known[name], "assumed") for name in names if name != STEPS and name in known]
    return [(MODEL_FORM, known[STEPS], "calibrated"), *fields]


def _grade(machine: Machine, name: str, share_outside: float) -> str:
    """Grade of a family: one lower where its constants are another GPU's, and where prices outside matter."""
    steps = (machine.residuals[name].stretch > 1) + (share_outside > MATTERS)
    return GRADES[min(GRADES.index("calibrated") + steps, len(GRADES) - 1)]


def evidence_grade(found: Interval, needs: tuple[Constant, ...]) -> str:
    """Weakest grade that matters: of what makes more than 5 % of the variance, and of numbers set by hand."""
    grades = [one.evidence for one in found.contributions if one.share > MATTERS]
    grades += ["assumed" for constant in needs if constant.by_hand and abs(constant.elasticity) >= SET_MATTERS]
    return max(grades, key=GRADES.index, default="calibrated")


def listed(found: Interval) -> list[Contribution]:
    """Contributions with the small constants added up."""
    large = [one for one in found.contributions if one.share >= LISTED or one.family]
    small = [one for one in found.contributions if one not in large]
    if small:
        error = math.sqrt(sum(one.log_error**2 for one in small))
        weakest = max((one.evidence for one in small), key=GRADES.index)
        large.append(
            Contribution(f"{len(small)} more constants", error, sum(one.share for one in small), weakest, False)
        )
    return large
