"""The fewest nodes on which a job fits, over all layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moesim.base.errors import Issue, SpecError
from moesim.base.words import changes_in_words
from moesim.cost.memory import FRAGMENTATION
from moesim.problem import Problem
from moesim.studies.basis import basis
from moesim.studies.search.answer import Found, Search
from moesim.studies.search.refusals import refusals
from moesim.studies.search.search import search
from moesim.studies.search.space import Vary

VARIED: Vary = dict.fromkeys(("tp", "pp", "ep", "micro_batch", "layout", "recompute"), "auto")
"""What is varied where nobody says what; the schedule follows the software."""


@dataclass(frozen=True)
class Tried:
    """A number of nodes, and the search on them.

    ``refusals``: why no layout is legal; ``closest``: where some are and none fits, the layout with the smallest peak, as
    a search without a limit of memory finds it.
    """

    nodes: int
    gpus: int
    found: Search
    refusals: tuple[Issue, ...] = ()
    closest: Found | None = None

    @property
    def lacking_bytes(self) -> float | None:
        """Bytes that a GPU lacks for the layout that comes closest; None where one fits, or none is legal. [B]"""
        if self.closest is None:
            return None
        return self.closest.plan.peak_bytes - float(self.found.space.problem.machine.gpu.memory_capacity)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        names = tuple(axis.name for axis in self.found.space.axes)
        best = self.found.top[0].to_dict(names) if self.found.top else None
        return {
            "nodes": self.nodes,
            "gpus": self.gpus,
            "plans_legal": self.found.plans_legal,
            "plans_fitting": self.found.plans_fitting,
            "best": best,
            "refused": dict(self.found.refused),
            "refusals": [str(issue) for issue in self.refusals],
            "closest": None if self.closest is None else self.closest.to_dict(names),
            "lacking_bytes": self.lacking_bytes,
        }


@dataclass(frozen=True)
class Fewest:
    """The fewest nodes of one case, and all that was tried for it."""

    case: Mapping[str, str]
    tried: tuple[Tried, ...]

    @property
    def name(self) -> str:
        """What is changed."""
        return changes_in_words(self.case)

    def to_dict(self, measured_s: float | None = None) -> dict[str, Any]:
        """Plain values in SI units; ``basis``: the step of the fastest layout on the fewest nodes."""
        last = self.tried[-1]
        best = last.found.top[0] if last.found.top else None
        variant = changes_in_words({**self.case, "cluster.count": last.nodes})
        plain: dict[str, Any] = {"set": dict(self.case)} if self.case else {}
        return plain | {
            "nodes": last.nodes if best else None,
            "gpus": last.gpus if best else None,
            "tried": [one.to_dict() for one in self.tried],
            "basis": basis(best.answer, measured_s, ", ".join(filter(None, (variant, best.variant)))) if best else None,
        }


def fewest_of_each(
    problem: Problem, nodes: Sequence[int], vary: Vary | None, cases: Sequence[Mapping[str, str]]
) -> tuple[Fewest, ...]:
    """The fewest nodes under each of several changes; an empty one is the job as it stands.

    Raises
    ------
    SpecError
        Where no layout is legal on any number of nodes.
    """
    found = []
    for case in cases:
        changed = problem.with_changes(case, "--each") if case else problem
        found.append(Fewest(case, fewest_nodes(changed, nodes, vary)))
    tried = [one for answer in found for one in answer.tried]
    if not any(one.found.plans_legal for one in tried):
        raise SpecError(
            replace(issue, where=f"--nodes {one.nodes}: {issue.where}") for one in tried for issue in one.refusals
        )
    return tuple(found)


def fewest_nodes(problem: Problem, nodes: Sequence[int], vary: Vary | None = None) -> tuple[Tried, ...]:
    """Search on more and more nodes until a layout fits.

    Parameters
    ----------
    problem
        The job; its global batch stays.
    nodes
        Numbers of nodes to try.
    vary
        As for :func:`moesim.search`; left out, :data:`VARIED`.

    Returns
    -------
    tuple
        What was tried, smallest first; the last one fits, unless none does.
    """
    tried: list[Tried] = []
    for count in sorted(set(nodes)):
        smaller = problem.with_changes({"cluster.count": count}, "--nodes")
        found = search(smaller, vary or VARIED, top=1)
        if not found.complete:
            raise KeyboardInterrupt
        why = () if found.plans_legal else refusals(found)
        closest = _closest(smaller, vary or VARIED) if found.plans_legal and not found.top else None
        tried.append(Tried(count, smaller.machine.num_gpus, found, why, closest))
        if found.top:
            break
    return tuple(tried)


def _closest(problem: Problem, vary: Vary) -> Found | None:
    """The legal layout with the smallest peak, where none fits.

    Its search has no limit of memory; the allocator holds as little beside what is used as it does at its limit.
    """
    machine = problem.machine
    memory = replace(machine.memory, allocator_slack=min(float(machine.memory.allocator_slack), FRAGMENTATION))
    roomy = replace(machine, gpu=replace(machine.gpu, memory_capacity=math.inf), memory=memory)
    found = search(replace(problem, machine=roomy), vary, top=1, objective="memory")
    if not found.complete:
        raise KeyboardInterrupt
    return found.top[0] if found.top else None
