"""The fewest nodes on which a job fits, over all layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.words import changes_in_words
from moesim.problem import Problem
from moesim.studies.basis import basis
from moesim.studies.search.answer import Search
from moesim.studies.search.search import search
from moesim.studies.search.space import Vary

VARIED: Vary = dict.fromkeys(("tp", "pp", "ep", "micro_batch", "layout", "recompute"), "auto")
"""What is varied where nobody says what; the schedule follows the software."""


@dataclass(frozen=True)
class Tried:
    """A number of nodes, and the search on them."""

    nodes: int
    gpus: int
    found: Search

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
    """The fewest nodes under each of several changes; an empty one is the job as it stands."""
    found = []
    for case in cases:
        changed = problem.with_changes(case, "--each") if case else problem
        found.append(Fewest(case, fewest_nodes(changed, nodes, vary)))
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
        tried.append(Tried(count, smaller.machine.num_gpus, found))
        if found.top:
            break
    return tuple(tried)
