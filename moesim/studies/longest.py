"""The longest sequence that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.studies.basis import basis
from moesim.studies.faults import with_changes


@dataclass(frozen=True)
class Longest:
    """The longest sequence of one variant, in tokens; None where not even the shortest fits or is legal.

    ``next_refused``: what stops the next longer one. ``slowdown``: time a token over that of the job as it stands. [-]
    """

    changes: Mapping[str, str]
    sequence_length: int | None
    answer: Estimate | None
    slowdown: float | None
    next_refused: str

    def to_dict(self, measured_s: float | None = None) -> dict[str, Any]:
        """Plain values in SI units, with what the step at that length rests on; ``measured_s``: one measured. [s]"""
        answer = self.answer
        return {
            "set": dict(self.changes),
            "sequence_length": self.sequence_length,
            "step_time_s": None if answer is None else answer.step_time_s,
            "tokens_per_s_per_gpu": None if answer is None else answer.tokens_per_s_per_gpu,
            "peak_bytes": None if answer is None else answer.memory.peak_bytes,
            "slowdown": self.slowdown,
            "next_refused": self.next_refused,
            "basis": None if answer is None else basis(answer, measured_s),
        }


def longest(
    problem: Problem, variants: Sequence[Mapping[str, str]], step: int = 1024, most: int = 4 * 1024**2
) -> tuple[Longest, ...]:
    """The longest sequence, a multiple of ``step`` tokens, that is legal and fits under each variant.

    The global batch stays the same number of sequences. Memory grows with the sequence, so bisection finds the end.

    Parameters
    ----------
    problem
        The job.
    variants
        Changes as ``--set`` takes them; an empty one changes nothing.
    step, most
        Granularity of the answer, and where the search ends. [tokens]
    """
    base = estimate(problem)
    return tuple(_one(problem, base, changes, step, most) for changes in variants)


def _one(problem: Problem, base: Estimate, changes: Mapping[str, str], step: int, most: int) -> Longest:
    why = {}

    def fits(count: int) -> Estimate | None:
        try:
            answer = estimate(with_changes(problem, {**changes, "sequence_length": str(count * step)}, "--vary"))
        except SpecError as error:
            why[count] = "; ".join(issue.what for issue in error.issues)
            return None
        if answer.feasible:
            return answer
        short = answer.memory.peak_bytes - answer.memory.capacity_bytes
        why[count] = f"{short / 2**30:.1f} GiB too much on pipeline rank {answer.memory.peak_stage}"
        return None

    low, found = 1, fits(1)
    if found is None:
        return Longest(changes, None, None, None, why[1])
    high = low
    while high * step < most:
        high *= 2
        answer = fits(high)
        if answer is None:
            break
        low, found = high, answer
    else:
        return Longest(changes, low * step, found, _slowdown(base, found), "the search ends here")
    while high - low > 1:
        middle = (low + high) // 2
        answer = fits(middle)
        low, high, found = (middle, high, answer) if answer is not None else (low, middle, found)
    return Longest(changes, low * step, found, _slowdown(base, found), why[high])


def _slowdown(base: Estimate, answer: Estimate) -> float:
    return base.tokens_per_s_per_gpu / answer.tokens_per_s_per_gpu
