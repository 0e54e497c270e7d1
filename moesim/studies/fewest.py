"""The fewest nodes on which a job fits, over all layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moesim.problem import Problem
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
