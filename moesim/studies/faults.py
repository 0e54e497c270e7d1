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
from moesim.fabric.faults import on_graph, rates_of
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


SHAPES = {
    "nic": (r"node\d+\.rail\d+", "nic:node3.rail5"),
    "rail": (r"\d+", "rail:5"),
    "switch": (r"[A-Za-z][\w-]*?\d+(\.\d+)?", "switch:spine0.3"),
    "link": (r"[A-Za-z][\w-]*?\d+(\.\d+)?-[A-Za-z][\w-]*?\d+(\.\d+)?", "link:leaf0-spine0.3"),
    "node": (r"\d+", "node:3"),
    "degrade": (r"[A-Za-z][\w-]*=(?P<share>.+)", "degrade:spine=0.5"),
    "slow": (r"node\d+=(?P<share>.+)", "slow:node3=0.8"),
}
"""How the target of each kind of fault is written, and an example."""


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
    well_formed(fault)
    kind = fault.partition(":")[0]
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


def well_formed(fault: str) -> None:
    """Refuse what is no fault on any machine: an unknown kind, a target that is not written as one, a share out of range."""
    kind, colon, target = fault.partition(":")
    where = f"--fault {fault}"
    if fault == NONE:
        return
    if kind not in SHAPES:
        raise SpecError.single(where, "", f"no kind of fault '{kind}'", did_you_mean(kind, SHAPES))
    shape, example = SHAPES[kind]
    found = re.fullmatch(shape, target) if colon else None
    if found is None:
        raise SpecError.single(where, "", f"'{target}' is no target of {kind}", f"write for example {example}")
    share = found.groupdict().get("share", "1")
    if not 0 < _number(share) <= 1:
        raise SpecError.single(where, "", f"'{share}' is not a share", f"more than 0 and at most 1: {example}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _slow_node(problem: Problem, plan: Plan, fault: str) -> Faulted:
    node, _, share = fault.removeprefix("slow:node").partition("=")
    machine = problem.machine
    nodes = -(-machine.num_gpus // machine.gpus_per_node)
    if int(node) >= nodes:
        raise SpecError.single(f"--fault {fault}", "", f"no node {node}", f"node0 to node{nodes - 1}")
    first = int(node) * machine.gpus_per_node
    stages = _stages(plan, np.arange(first, min(first + machine.gpus_per_node, machine.num_gpus)))
    return Faulted(fault, replace(problem, slow=Slow(stages, compute=float(share))), (), stages)


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
