"""Who writes how much of a checkpoint, and what bounds a save: the fullest writer's link, the storage, the copies before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import SpecError, did_you_mean
from moesim.cost.plan import Plan
from moesim.cost.update import held_params, owned_params
from moesim.problem import Problem
from moesim.spec import library
from moesim.spec.storage import StorageSpec

Floats = NDArray[np.float64]

SAVES = {
    "sharded": "every rank writes the part that it updates",
    "first-replica": "the ranks of the first replica write all of it",
    "gathered": "one rank collects all of it and writes it",
}
"""Who writes. PyTorch's distributed checkpoints and Megatron's fully parallel save are of the first kind."""


@dataclass(frozen=True)
class Saving:
    """A save, part by part. Sizes in B, times in s.

    ``writers``: ranks that write. ``heaviest_bytes`` of the writer that has most, ``mean_bytes`` of all that
    write; ``node_bytes``: what the node with most of it writes. ``blocking_s``: what stands before the first byte is
    written, on every rank: the copy to the host, and the collection where one rank writes. ``limits_s``: how long each
    thing alone would need; the longest bounds the save.
    """

    kind: str
    writers: int
    heaviest_bytes: float
    mean_bytes: float
    node_bytes: float
    copy_s: float
    limits_s: Mapping[str, float]

    @property
    def imbalance(self) -> float:
        """What the writer that has most writes, over the mean of the writers. [-]"""
        return self.heaviest_bytes / self.mean_bytes

    @property
    def bound(self) -> str:
        """What takes longest."""
        return max(self.limits_s, key=lambda name: self.limits_s[name])

    @property
    def write_s(self) -> float:
        """Time of the save at full rates, without opening files. [s]"""
        return self.limits_s[self.bound]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = dict(vars(self)) | {"limits_s": dict(self.limits_s)}
        return plain | {"imbalance": self.imbalance, "bound": self.bound, "write_s": self.write_s}


def saving(
    problem: Problem,
    tier: StorageSpec,
    num_bytes: float,
    kind: str = "sharded",
    writers: int | None = None,
    bandwidth: float | None = None,
) -> Saving:
    """Who writes how much of a checkpoint, and how long each part of the way takes.

    Parameters
    ----------
    problem
        The job; where its strategy is not legal, its ranks are taken to write alike.
    tier
        Where to.
    num_bytes
        The whole checkpoint. [B]
    kind
        One of :data:`SAVES`.
    writers
        Ranks that write equal parts, spread over the nodes; left out, those that the layout makes.
    bandwidth
        Of all writers together, in place of the storage's. [B/s]

    Raises
    ------
    SpecError
        For an unknown kind, more writers than GPUs, and writers of a save that one rank writes.
    """
    machine = problem.machine
    if kind not in SAVES:
        raise SpecError.single("--save", "", f"no kind of save '{kind}'", did_you_mean(kind, SAVES))
    if writers is not None and writers > machine.num_gpus:
        raise SpecError.single("--writers", "", f"{writers} writers on {machine.num_gpus} GPUs", "one a GPU at most")
    if writers is not None and kind != "sharded":
        raise SpecError.single("--writers", "", f"a {kind} save says itself who writes", "leave one of them out")
    gpus, per_node = machine.num_gpus, machine.gpus_per_node
    nodes = -(-gpus // per_node)
    link = library.get("gpus", machine.gpu.name).pcie_bandwidth.value
    if kind == "gathered":
        away = num_bytes * (gpus - 1) / gpus
        limits = _limits(tier, num_bytes, num_bytes, bandwidth)
        copy = num_bytes / link
        slowest = machine.links.nic_bandwidth if nodes > 1 else machine.links.nvlink_bandwidth
        return Saving(kind, 1, num_bytes, num_bytes, num_bytes, copy + away / float(slowest), limits)
    if writers is not None:
        used = min(writers, nodes)  # ranks of a node share what it writes
        part = num_bytes / writers
        return Saving(
            kind,
            writers,
            part,
            part,
            num_bytes / used,
            part / link,
            _limits(tier, num_bytes, num_bytes / used, bandwidth),
        )
    parts = _parts(problem, kind)
    parts = num_bytes * parts / parts.sum()
    filled = np.zeros(nodes * per_node)
    filled[:gpus] = parts
    by_node = filled.reshape(nodes, per_node).sum(axis=1)
    writing = parts[parts > 0]
    heaviest = float(parts.max())
    limits = _limits(tier, num_bytes, float(by_node.max()), bandwidth)
    return Saving(kind, len(writing), heaviest, float(writing.mean()), float(by_node.max()), heaviest / link, limits)


def _limits(tier: StorageSpec, whole: float, of_node: float, bandwidth: float | None) -> dict[str, float]:
    """Time of each thing that bytes pass, alone. [s]"""
    if bandwidth is not None:
        return {"bandwidth that was given": whole / bandwidth}
    limits = {"link of the node that writes most": of_node / tier.write_bandwidth.value}
    if tier.aggregate_bandwidth is not None:
        limits["storage, all nodes together"] = whole / tier.aggregate_bandwidth.value
    return limits


def _parts(problem: Problem, kind: str) -> Floats:
    """Share of the checkpoint that each GPU writes, in their order, up to a factor. [-]"""
    gpus = problem.machine.num_gpus
    if problem.check():
        return np.ones(gpus)
    plan = problem.plan()
    of_stage = gpus // plan.strategy.pp
    whole = kind == "first-replica" or not plan.sharding.optimizer
    stages = [
        _first_replica(plan, rank, of_stage) if whole else _owned(plan, rank, of_stage)
        for rank in range(plan.strategy.pp)
    ]
    return np.concatenate(stages)


def _owned(plan: Plan, rank: int, ranks: int) -> Floats:
    """Values that each rank of a stage updates. [-]"""
    return np.full(ranks, float(owned_params(plan, held_params(plan, rank))))


def _first_replica(plan: Plan, rank: int, ranks: int) -> Floats:
    """Values that the first ranks of a stage hold: tensor-parallel ones of the dense, expert-parallel ones of the routed."""
    held = held_params(plan, rank)
    places = np.arange(ranks)
    dense = np.where(places < int(plan.strategy.tp), float(held.dense), 0.0)
    return dense + np.where(places < int(plan.strategy.ep * plan.strategy.etp), float(held.routed), 0.0)
