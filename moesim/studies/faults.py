"""What a fault costs: which groups of a run suffer, on which pipeline ranks, and what the step becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from moesim.base.errors import SpecError, did_you_mean
from moesim.cost.plan import Plan
from moesim.cost.slow import Slow
from moesim.fabric.faults import KINDS, on_graph, rates_of
from moesim.fabric.graph import MOST_GPUS
from moesim.fabric.layout import Ints, Layout, Pattern
from moesim.fabric.network import Network
from moesim.fabric.tiers import members_bandwidth
from moesim.problem import Problem
from moesim.studies.fabric_groups import axis_traffic

PATH = "fault"
"""Name of a fault among the changes of a variant."""

NONE = "none"
"""Its value for no fault, the base beside others."""


@dataclass(frozen=True)
class AxisEffect:
    """What the groups of one axis lose.

    ``before``: bandwidth of a rank [B/s], ``after``: of the slowest group; ``suffering`` of ``groups`` get less, and
    ``ranks`` are the members of the worst one.
    """

    axis: str
    pattern: Pattern
    before: float
    after: float
    suffering: int
    groups: int
    ranks: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        return {
            "axis": self.axis,
            "pattern": self.pattern,
            "before_bytes_per_s": self.before,
            "after_bytes_per_s": self.after,
            "slowdown": self.before / self.after,
            "groups_suffering": self.suffering,
            "groups": self.groups,
            "worst_group_ranks": list(self.ranks),
        }


@dataclass(frozen=True)
class Faulted:
    """A problem with a fault, and what its groups lose. ``stages``: pipeline ranks that are slower than before."""

    fault: str
    problem: Problem
    effects: tuple[AxisEffect, ...]
    stages: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON."""
        effects = [effect.to_dict() for effect in self.effects]
        return {"fault": self.fault, "pipeline_ranks_hit": list(self.stages), "groups_by_axis": effects}


def faulted(problem: Problem, fault: str) -> Faulted:
    """Return the problem with something broken or slow.

    Parameters
    ----------
    fault
        ``nic:node3.rail5``, ``rail:5``, ``switch:spine0.3``, ``link:leaf0-spine0.3``, ``degrade:spine=0.5`` (the links
        into a tier at a share of their bandwidth) or ``slow:node3=0.8`` (a node that computes at a share of its rate).

    Notes
    -----
    All groups of an axis wait for their slowest one where they meet, in the same pipeline stage; stages without a slow
    group keep their times and wait in the schedule. A node that is lost stops the job.
    """
    plan = problem.plan()
    kind = fault.partition(":")[0]
    if kind not in (*KINDS, "slow"):
        raise SpecError.single(
            f"--fault {fault}", "", f"no kind of fault '{kind}'", did_you_mean(kind, (*KINDS, "slow"))
        )
    if kind == "slow":
        return _slow_node(problem, plan, fault)
    if on_graph(fault) and problem.machine.num_gpus > MOST_GPUS:
        what = f"takes the graph of every link, and {problem.machine.num_gpus} GPUs are too many"
        raise SpecError.single(f"--fault {fault}", "", what, f"{MOST_GPUS} or fewer, or degrade:TIER=SHARE")
    network = problem.machine.network
    assert network is not None
    broken = replace(network, fault=fault)
    if kind == "node":
        raise _stopped(broken, problem)
    rows = [_effect(broken, plan, one.axis, one.pattern) for one in axis_traffic(plan)]
    effects = tuple(effect for effect, _ in rows)
    hit = sorted({stage for effect, stages in rows if effect.axis != "pp" for stage in stages})
    if not hit and any(effect.suffering for effect in effects):
        hit = list(range(int(plan.mesh.pp)))  # sends alone
    kept = float(fault.partition("=")[2]) if fault.startswith("degrade:nvlink=") else 1.0
    slow = Slow(tuple(hit), None if kept < 1 else broken, kept)
    return Faulted(fault, replace(problem, slow=slow if hit else None), effects, tuple(hit))


def with_changes(problem: Problem, changes: Mapping[str, Any], where: str) -> Problem:
    """Return the changed problem; the path ``fault`` names a fault, which comes last, or ``none``."""
    others = {path: value for path, value in changes.items() if path != PATH}
    changed = problem.with_changes(others, where) if others else problem
    fault = changes.get(PATH, NONE)
    return changed if fault == NONE else faulted(changed, fault).problem


def _slow_node(problem: Problem, plan: Plan, fault: str) -> Faulted:
    found = re.fullmatch(r"slow:node(\d+)=(.*)", fault)
    where = f"--fault {fault}"
    if not found:
        raise SpecError.single(where, "", "is not slow:NODE=SHARE", "write for example slow:node3=0.8")
    machine = problem.machine
    nodes = -(-machine.num_gpus // machine.gpus_per_node)
    if int(found[1]) >= nodes:
        raise SpecError.single(where, "", f"no node {found[1]}", f"node0 to node{nodes - 1}")
    try:
        share = float(found[2])
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise SpecError.single(where, "", f"'{found[2]}' is not a share", "more than 0 and at most 1")
    first = int(found[1]) * machine.gpus_per_node
    stages = _stages(plan, np.arange(first, min(first + machine.gpus_per_node, machine.num_gpus)))
    return Faulted(fault, replace(problem, slow=Slow(stages, compute=share)), (), stages)


def _stopped(network: Network, problem: Problem) -> SpecError:
    fault = network.fault
    _ = network.broken  # an unknown node is told first
    count = -(-problem.machine.num_gpus // problem.machine.gpus_per_node)
    first = int(fault.partition(":")[2]) * problem.machine.gpus_per_node
    what = f"the job stops: GPUs {first} to {first + problem.machine.gpus_per_node - 1} are lost"
    return SpecError.single(f"--fault {fault}", "", what, f"run on what is left with --set cluster.count={count - 1}")


def _effect(network: Network, plan: Plan, axis: str, pattern: Pattern) -> tuple[AxisEffect, tuple[int, ...]]:
    """What an axis loses, and the pipeline ranks whose groups do."""
    mesh = plan.mesh
    members = Layout(plan.machine.num_gpus, int(mesh.size(axis)), int(mesh.stride(axis))).members()
    before = members_bandwidth(network.reduced, members, pattern).bandwidth
    if on_graph(network.fault):
        rates = np.array(rates_of(network.broken, members, pattern).rates)
    else:
        slowest = members_bandwidth(network.worn, members, pattern).bandwidth
        rates = np.full(len(members), slowest)
    suffer = rates < before * (1 - 1e-9)
    worst = members[int(rates.argmin())].tolist() if suffer.any() else []
    effect = AxisEffect(
        axis, pattern, before, min(before, float(rates.min())), int(suffer.sum()), len(members), tuple(worst)
    )
    return effect, _stages(plan, members[suffer].ravel())


def _stages(plan: Plan, ranks: Ints) -> tuple[int, ...]:
    """Pipeline ranks that GPUs belong to."""
    return tuple(np.unique(ranks // int(plan.mesh.stride("pp"))).tolist())
