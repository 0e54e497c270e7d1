"""The longest sequence that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.words import changes_in_words
from moesim.cost.memory import plan_memory
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.reading import memory_answer
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
        variant = changes_in_words({**self.changes, "sequence_length": self.sequence_length})
        return {
            "set": dict(self.changes),
            "sequence_length": self.sequence_length,
            "step_time_s": None if answer is None else answer.step_time_s,
            "tokens_per_s_per_gpu": None if answer is None else answer.tokens_per_s_per_gpu,
            "peak_bytes": None if answer is None else answer.memory.peak_bytes,
            "slowdown": self.slowdown,
            "next_refused": self.next_refused,
            "basis": None if answer is None else basis(answer, measured_s, variant),
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

    def fits(count: int) -> bool:
        try:
            changed = _of_length(problem, changes, count * step)
            memory = memory_answer(plan_memory(changed.plan()), changed.machine)
        except SpecError as error:
            why[count] = "; ".join(issue.what for issue in error.issues)
            return False
        short = memory.peak_bytes - memory.capacity_bytes
        if short > 0:
            why[count] = f"{short / 2**30:.1f} GiB too much on pipeline rank {memory.peak_stage}"
        return short <= 0

    if not fits(1):
        return Longest(changes, None, None, None, why[1])
    low, high, stopped = 1, 1, "the search ends here"
    while high * step < most:
        high *= 2
        if not fits(high):
            break
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    answer = estimate(_of_length(problem, changes, low * step))
    return Longest(changes, low * step, answer, _slowdown(base, answer), why.get(high, stopped))


def _of_length(problem: Problem, changes: Mapping[str, str], tokens: int) -> Problem:
    return with_changes(problem, {**changes, "sequence_length": str(tokens)}, "--vary")


def _slowdown(base: Estimate, answer: Estimate) -> float:
    return base.tokens_per_s_per_gpu / answer.tokens_per_s_per_gpu
