"""What people measure of a run, as a step: seconds, tokens a second, TFLOP/s, MFU, each with its convention."""

from __future__ import annotations

import re
from dataclasses import dataclass

from moesim.base.errors import SpecError, did_you_mean
from moesim.base.units import parse_quantity
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.workload.model import FLOPS_CONVENTIONS

CONVENTION_WORDS = {
    "causal": "keys that a query may see; no recomputation (Megatron-Bridge, OLMo-core, this estimate)",
    "full": "all keys, causal or not; no recomputation (llm-foundry, NeMo)",
    "6n-plus-attn": "6 N of the active parameters and 12 L d s (torchtitan)",
}
"""What each convention of model FLOPs counts, and stacks whose published tables print it."""
_TOKENS = re.compile(
    r"([\d.,]+(?:e\d+)?) ?([kM]?) ?tok(?:ens?)?(?:/s|/sec|ps)(?: ?(/GPU|per GPU|total))?(?: ?(total))?", re.IGNORECASE
)
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6}
_SHARE = re.compile(r"([\d.]+) ?%(?: ?MFU)?", re.IGNORECASE)
_RATE = re.compile(r".*FLOPs?(/s|S)?(/GPU| per GPU)?", re.IGNORECASE)


@dataclass(frozen=True)
class Utilisation:
    """Model FLOPs of a step in one convention. ``mfu`` of the dense BF16 peak. [FLOP, FLOP/s, -]"""

    convention: str
    flop_per_token: float
    predicted_flop_rate: float
    predicted_mfu: float
    measured_flop_rate: float
    measured_mfu: float
    counts: str


def flop_per_token(problem: Problem, convention: str) -> float:
    """Model FLOPs of one token in a convention. [FLOP]"""
    if convention == "causal":
        return problem.plan().flop_per_token
    return problem.model.flop_per_token(problem.sequence_length, convention)


def measured_step(text: str, problem: Problem, convention: str = "causal") -> float:
    """Return the step that a measured number stands for. [s]

    Parameters
    ----------
    text
        ``12.3s``, ``1234 tok/s`` (of a GPU), ``1.2M tok/s total``, ``245 TFLOP/s`` (of a GPU) or ``9.5%`` (MFU).
    problem
        What ran.
    convention
        How the FLOPs of the last two are counted, one of :data:`moesim.workload.model.FLOPS_CONVENTIONS`.

    Raises
    ------
    SpecError
        Where it is none of these.
    """
    known_convention(convention)
    tokens = problem.global_batch * problem.sequence_length
    of_gpu, peak = tokens / problem.machine.num_gpus, float(problem.machine.gpu.bf16_flop_rate)
    plain = text.strip()
    if convention != "causal" and not _SHARE.fullmatch(plain) and not _RATE.fullmatch(plain):
        what = f"is how FLOPs are counted, and '{plain}' counts none"
        raise SpecError.single("--convention", "", what, "leave it out, or measure TFLOP/s or MFU")
    if found := _TOKENS.fullmatch(plain):
        rate = _number(text, found[1]) * _SIZES[found[2].lower()]
        total = "total" in (found[3] or "").lower() or bool(found[4])
        return _positive(text, (tokens if total else of_gpu) / rate if rate else 0.0)
    if found := _SHARE.fullmatch(plain):
        share = _number(text, found[1]) / 100
        if share >= 1:
            raise SpecError.single("--measured", "", f"an MFU of '{text}' is not below 100 %")
        flop = flop_per_token(problem, convention) * of_gpu
        return _positive(text, flop / (share * peak) if share else 0.0)
    try:
        if not _RATE.fullmatch(plain):
            seconds = parse_quantity(plain, "time", "19.7 s")
        else:
            rate = parse_quantity(re.sub(r" ?(/GPU|per GPU)$", "", plain, flags=re.IGNORECASE), "flop_rate")
            seconds = flop_per_token(problem, convention) * of_gpu / rate if rate else 0.0
    except ValueError as error:
        raise SpecError.single("--measured", "", str(error), "or '1234 tok/s', '245 TFLOP/s', '9.5%' of MFU") from None
    return _positive(text, seconds)


def known_convention(convention: str) -> None:
    """Refuse the name of no convention."""
    if convention not in FLOPS_CONVENTIONS:
        what = f"no convention of FLOPs '{convention}'"
        raise SpecError.single("--convention", "", what, did_you_mean(str(convention), FLOPS_CONVENTIONS))


def utilisations(problem: Problem, answer: Estimate, measured_s: float) -> tuple[Utilisation, ...]:
    """Both steps in every convention."""
    of_gpu = problem.global_batch * problem.sequence_length / problem.machine.num_gpus
    peak = float(problem.machine.gpu.bf16_flop_rate)
    found = []
    for name, words in CONVENTION_WORDS.items():
        each = flop_per_token(problem, name)
        rates = [each * of_gpu / seconds for seconds in (answer.step_time_s, measured_s)]
        found.append(Utilisation(name, each, rates[0], rates[0] / peak, rates[1], rates[1] / peak, words))
    return tuple(found)


def _number(text: str, digits: str) -> float:
    try:
        return float(digits.replace(",", ""))
    except ValueError:
        raise SpecError.single("--measured", "", f"'{text}' is no number") from None


def _positive(text: str, seconds: float) -> float:
    if not seconds > 0:
        raise SpecError.single("--measured", "", f"'{text}' is no duration", "write for example 19.7s")
    return seconds
