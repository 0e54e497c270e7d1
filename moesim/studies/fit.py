"""Whether a job fits: the fullest rank and what fills it, the memory of a host, and the fewest changes that make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moesim.base.checked import optional
from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.cost.memory import plan_memory
from moesim.estimator import estimate
from moesim.problem import Named, Problem, as_problem
from moesim.reading import memory_answer
from moesim.result import Estimate, MemoryEstimate
from moesim.workload.recompute import parse, policies

MOST_CHANGES = 4
"""Changes beyond which no remedy is looked for."""
KEPT = 4
"""Sets of changes that are taken further where none of their size fits: those that need least."""
SHARES = ("0.25", "0.5", "0.75", "1.0")
"""Shares of the optimizer or of the activations that may go to the host."""
SHARDINGS = ("ddp", "zero1", "zero2", "fsdp")
"""Ways to shard training state over replicas, from none of it to all."""


@dataclass(frozen=True)
class Remedy:
    """Changes under which the job fits. ``slowdown``: time a token takes a GPU over that of the job as it stands. [-]"""

    changes: Mapping[str, str]
    answer: Estimate
    slowdown: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "set": dict(self.changes),
            "peak_bytes": self.answer.memory.peak_bytes,
            "host_bytes_per_node": self.answer.memory.host_bytes_per_node,
            "step_time_s": self.answer.step_time_s,
            "slowdown": self.slowdown,
        }


@dataclass(frozen=True)
class Fit(Shown):
    """Whether a job fits, and what would make it.

    ``host_memory_bytes``: of a node, None where nobody said. ``remedies``: of the fewest changes that suffice, the fastest
    first; empty where the job fits, or where :data:`MOST_CHANGES` do not suffice. ``tried``: sets of changes looked at.
    """

    answer: Estimate
    host_memory_bytes: float | None
    remedies: tuple[Remedy, ...]
    tried: int

    @property
    def fits_gpu(self) -> bool:
        """Whether the fullest rank fits its GPU."""
        return self.answer.feasible

    @property
    def fits_host(self) -> bool | None:
        """Whether a host holds what is moved to it; None where that is something and nobody said how much it has."""
        return _holds(self.answer.memory, self.host_memory_bytes)

    @property
    def fits(self) -> bool:
        """Whether nothing is known to be too small."""
        return self.fits_gpu and self.fits_host is not False

    @property
    def tightest(self) -> dict[str, Any]:
        """The fullest rank: phase of its peak, what it has left, and the class that takes most of it. [B]"""
        memory = self.answer.memory
        classes = {name: value for name, value in memory.stages[memory.peak_stage].items() if name != "peak_bytes"}
        largest = max(classes, key=lambda name: classes[name])
        return {
            "stage": memory.peak_stage,
            "phase": memory.peak_phase,
            "headroom_bytes": memory.capacity_bytes - memory.peak_bytes,
            "class": largest.removesuffix("_bytes"),
            "class_bytes": classes[largest],
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        memory = self.answer.memory
        return {
            "name": self.answer.name,
            "fits": self.fits,
            "fits_gpu": self.fits_gpu,
            "fits_host": self.fits_host,
            "peak_bytes": memory.peak_bytes,
            "capacity_bytes": memory.capacity_bytes,
            "host_bytes_per_node": memory.host_bytes_per_node,
            "host_memory_bytes": self.host_memory_bytes,
            "stages": [dict(stage) for stage in memory.stages],
            "tightest": self.tightest,
            "step_time_s": self.answer.step_time_s,
            "low_s": self.answer.low_s,
            "high_s": self.answer.high_s,
            "binding": self.answer.binding,
            "evidence": self.answer.evidence,
            "remedies": [one.to_dict() for one in self.remedies],
            "sets_tried": self.tried,
        }


def fit(problem: Named, host_memory_bytes: float | None = None) -> Fit:
    """Say whether a job fits, and look for the fewest changes with which it would.

    Parameters
    ----------
    problem
        The job.
    host_memory_bytes
        What a node has for data that is moved to it; left out, that is told and not judged. [B]

    Raises
    ------
    SpecError
        Where the strategy is not legal, or the memory is no number of bytes.
    """
    problem = as_problem(problem, "fit")
    host_memory_bytes = optional("fit", "host_memory_bytes", host_memory_bytes)
    answer = estimate(problem)
    found = Fit(answer, host_memory_bytes, (), 0)
    if found.fits:
        return found
    remedies, tried = _remedies(problem, answer, host_memory_bytes)
    return replace(found, remedies=remedies, tried=tried)


def _remedies(problem: Problem, base: Estimate, host: float | None) -> tuple[tuple[Remedy, ...], int]:
    """Sets of one change that fit, or of two where none of one does, and so on."""
    singles = [{path: value} for path, value in _changes(problem)]
    sets: list[dict[str, str]] = singles
    tried = 0
    for _ in range(MOST_CHANGES):
        needs = []
        for changes in sets:
            memory = _memory(problem, changes)
            tried += 1
            if memory is not None:
                needs.append((memory.peak_bytes, changes, memory))
        fitting = [changes for _, changes, memory in needs if _fits(memory, host)]
        if fitting:
            return tuple(_smallest(problem, base, fitting)), tried
        sets = _extended(_least(needs), singles)
    return (), tried


def _least(needs: Sequence[tuple[float, dict[str, str], MemoryEstimate]]) -> list[dict[str, str]]:
    """Of changes to the same things those that need least, and of these the first few."""
    least: dict[tuple[str, ...], dict[str, str]] = {}
    for _, changes, _ in sorted(needs, key=lambda one: one[0]):
        least.setdefault(tuple(sorted(changes)), changes)
    return list(least.values())[:KEPT]


def _extended(sets: Sequence[dict[str, str]], singles: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Each set with one more change of something that it leaves alone, each combination once."""
    found = {}
    for changes in sets:
        for more in singles:
            if not set(more) & set(changes):
                both = changes | more
                found[tuple(sorted(both.items()))] = both
    return list(found.values())


def _smallest(problem: Problem, base: Estimate, sets: Sequence[dict[str, str]]) -> list[Remedy]:
    """Of changes to the same things the one that costs least, the cheapest first."""
    best: dict[tuple[str, ...], Remedy] = {}
    for changes in sets:
        answer = estimate(problem.with_changes(changes))
        one = Remedy(changes, answer, base.tokens_per_s_per_gpu / answer.tokens_per_s_per_gpu)
        paths = tuple(sorted(changes))
        if paths not in best or one.slowdown < best[paths].slowdown:
            best[paths] = one
    return sorted(best.values(), key=lambda one: one.slowdown)


def _memory(problem: Problem, changes: Mapping[str, str]) -> MemoryEstimate | None:
    """Memory under some changes; None where they are not legal."""
    try:
        changed = problem.with_changes(changes)
        return memory_answer(plan_memory(changed.plan()), changed.machine)
    except SpecError:
        return None


def _holds(memory: MemoryEstimate, host: float | None) -> bool | None:
    if not memory.host_bytes_per_node:
        return True
    return None if host is None else memory.host_bytes_per_node <= host


def _fits(memory: MemoryEstimate, host: float | None) -> bool:
    return memory.peak_bytes <= memory.capacity_bytes and _holds(memory, host) is not False


def _changes(problem: Problem) -> Iterator[tuple[str, str]]:
    """Single changes that may need less memory than the job as it stands."""
    own = problem.strategy
    present = {parse(name)[0] for name in own.recompute}
    if not present & {"full", "sqrt"}:
        yield from (("recompute", ",".join((*own.recompute, name))) for name in _modules() if name not in present)
    if "full" not in present:
        yield "recompute", "full"
    yield from (("micro_batch", str(size)) for size in range(1, int(own.micro_batch)) if own.micro_batch % size == 0)
    for name in ("tp", "cp", "pp", "ep", "etp"):
        yield from ((name, str(int(getattr(own, name)) * factor)) for factor in (2, 4))
    if own.vpp > 1:
        yield "vpp", "1"
    if own.tp > 1 and not own.sequence_parallel:
        yield "sequence_parallel", "true"
    if own.dp_sharding in SHARDINGS:
        yield from (("dp_sharding", name) for name in SHARDINGS[SHARDINGS.index(own.dp_sharding) + 1 :])
    for name in ("grad_dtype", "optimizer_state_dtype"):
        if getattr(own, name) == "fp32":
            yield name, "bf16"
    for name in ("optimizer_offload", "activation_offload"):
        if getattr(own, name) > 0:  # back to the GPU, where the host has too little
            yield from ((name, share) for share in ("0.0", *SHARES) if float(share) < getattr(own, name))
        yield from ((name, share) for share in SHARES if float(share) > getattr(own, name))
    yield from (("cluster.count", str(problem.scenario.cluster.count * factor)) for factor in (2, 4, 8))


def _modules() -> list[str]:
    return [name for name in policies.names() if name not in ("full", "sqrt", "op-selective")]
