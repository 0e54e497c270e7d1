"""What one micro-batch takes and keeps in every kind of stage: priced once for the degrees, used by every pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.cost.blocks import Blocks, PricedBlock, chunk_blocks, plan_blocks
from moesim.cost.kept import kept, stage_bytes, waiting
from moesim.cost.memory import Transient, transients, transport_buffers
from moesim.cost.once import Once
from moesim.cost.plan import Plan
from moesim.problem import Problem
from moesim.studies.search.paths import EXCHANGE, FIRST_OUT, HOST, LOOP, SM, block_pass
from moesim.workload.stages import Stage
from moesim.workload.strategy import Strategy

Array = NDArray[np.float64]
ACTIVATIONS, LOGITS, WAITING = range(3)


class StageKinds:
    """Kinds of stages: the same layers and ends, wherever they sit."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._known: dict[tuple[object, ...], int] = {}
        self.stages: list[Stage] = []

    def of(self, stages: tuple[Stage, ...]) -> tuple[int, ...]:
        """Number of the kind of each stage."""
        layers = self._problem.model.layers
        ends = self._problem.machine.runtime.bf16_layers
        found = []
        for stage in stages:
            inside = tuple((layers[index], ends <= index < len(layers) - ends) for index in stage.layers)
            key = (inside, stage.embedding, stage.loss, stage.mtp)
            if key not in self._known:
                self._known[key] = len(self.stages)
                self.stages.append(stage)
            found.append(self._known[key])
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of one micro-batch in each kind of stage that no run can beat. (kinds, n) [s]

    ``lanes``: of forward and backward together on each lane that two chains share, for merged pairs. (lanes, kinds, n)
    """

    forward: Array
    backward: Array
    split: Array
    lanes: Array


@dataclass(eq=False)
class Tables:
    """Prices and bytes of the kinds of stages, for the columns of a part and one choice of methods.

    ``kinds``: numbers of the kinds, in their order. ``bytes``: activations, logits, and what waits for a weight gradient. (3, kinds, n) [B]
    """

    plan: Plan
    blocks: Blocks
    kinds: tuple[int, ...]
    times: Times
    bytes: Array
    transient: Transient
    buffers: dict[float, Array] = field(default_factory=dict)

    def rows(self, kinds: tuple[int, ...]) -> NDArray[np.int64]:
        """Rows of some kinds."""
        return np.searchsorted(self.kinds, kinds)

    def transport(self, in_flight: float) -> Array:
        """Buffers of the expert transport. (n,) [B]"""
        if in_flight not in self.buffers:
            self.buffers[in_flight] = wide(transport_buffers(self.plan, in_flight), self.plan.shape)
        return self.buffers[in_flight]


def wide(value: Any, shape: tuple[int, ...]) -> Array:
    """A number as columns."""
    return np.broadcast_to(np.asarray(value, dtype=float), shape)


def column_plan(
    problem: Problem, strategy: Strategy, stages: tuple[Stage, ...], micro_batches: int = 2, prices: Once | None = None
) -> Plan:
    """A plan in columns, at the clock at which kernels are measured: a power limit makes no step faster.

    `prices`: of plans that differ in recomputation and expert transport alone, which it shares.
    """
    machine = replace(problem.machine, gpu=replace(problem.machine.gpu, power=None))
    shape = strategy.shape
    plan = Plan(
        problem.model, machine, strategy, stages, problem.sequence_length, micro_batches, 0, shape,
        documents=problem.documents,
    )  # fmt: skip
    if prices is not None:
        plan.share(prices)
    return plan


def tables(
    problem: Problem, strategy: Strategy, stages: tuple[Stage, ...], splits: bool, kinds: tuple[int, ...], prices: Once
) -> Tables:
    """Price the kinds of stages.

    Parameters
    ----------
    problem, strategy
        The job, and the degrees in columns with their methods; what the pipeline looks like does not matter.
    stages
        One stage of each kind.
    splits
        Whether backwards may be split.
    kinds
        Numbers of the kinds.
    prices
        Those of other tables for the same columns, which differ in recomputation and expert transport alone.
    """
    plan = column_plan(problem, strategy.replace(pp=1, vpp=1, schedule="none", layout="even"), stages, prices=prices)
    blocks = plan_blocks(plan)
    stored = stage_bytes(plan, blocks, kept)
    later = stage_bytes(plan, blocks, waiting) if splits else (0.0,) * len(stages)
    held = np.empty((3, len(stages), *plan.shape))
    for kind, ((activations, logits), waits) in enumerate(zip(stored, later, strict=True)):
        held[ACTIVATIONS, kind], held[LOGITS, kind], held[WAITING, kind] = activations, logits, waits
    times = _times(plan, blocks, stages, splits)
    return Tables(plan, blocks, kinds, times, held, transients(plan, blocks))


class Passes:
    """Passes of the blocks, once each."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[tuple[int, str], Array] = {}

    def of(self, block: PricedBlock, kind: str) -> Array:
        """Seconds of a block on lanes and paths. (6, n) [s]"""
        key = (id(block), kind)
        if key not in self._known:
            if kind == "F":
                ops = block.forward
            elif kind == "BW":
                ops = block.backward
            else:
                ops = block.split[kind == "W"]
            self._known[key] = block_pass(ops, self._plan.machine.host.sync, self._plan.shape)
        return self._known[key]

    def sums(self, chunk: list[PricedBlock], kind: str) -> Array:
        """Sums over the blocks of a chunk. (6, n) [s]"""
        found = np.zeros((6, *self._plan.shape))
        for block, count in counted(chunk):
            found += count * self.of(block, kind)
        return found

    def total(self, chunk: list[PricedBlock], kind: str) -> tuple[Array, Array]:
        """Seconds on lanes and paths of a chunk, and its least time. (6, n), (n,) [s]"""
        sums = self.sums(chunk, kind)
        if not chunk:
            return sums, sums[0]
        last = self.of(chunk[-1] if kind == "F" else chunk[0], kind)
        ends_on_device = sums[LOOP] - last[LOOP] + last[FIRST_OUT]
        return sums, np.maximum.reduce([*sums[:FIRST_OUT], ends_on_device])


def counted(chunk: list[PricedBlock]) -> list[tuple[PricedBlock, int]]:
    """Different blocks of a chunk, and how many of each it has."""
    counts: dict[int, tuple[PricedBlock, int]] = {}
    for block in chunk:
        counts[id(block)] = (block, counts.get(id(block), (block, 0))[1] + 1)
    return list(counts.values())


def _times(plan: Plan, blocks: Blocks, stages: tuple[Stage, ...], splits: bool) -> Times:
    passes = Passes(plan)
    shape = (len(stages), *plan.shape)
    forward, backward, split = np.empty(shape), np.empty(shape), np.empty((2, *shape))
    lanes = np.empty((3, *shape))
    for kind, stage in enumerate(stages):
        chunk = chunk_blocks(plan, stage, blocks)
        sums, forward[kind] = passes.total(chunk, "F")
        back, backward[kind] = passes.total(chunk, "BW")
        for row, lane in enumerate((SM, EXCHANGE, HOST)):
            lanes[row, kind] = sums[lane] + back[lane]
        if splits:
            split[0, kind], split[1, kind] = passes.total(chunk, "B")[1], passes.total(chunk, "W")[1]
    return Times(forward, backward, split, lanes)
