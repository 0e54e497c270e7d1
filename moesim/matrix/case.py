"""One step, with or without a method, as the bottlenecks read it: operations, memory and times, each when first asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.blocks import Blocks, PricedBlock, chunk_blocks, price_blocks
from moesim.cost.contention import Contention
from moesim.cost.memory import RankMemory, rank_memory
from moesim.cost.once import Once
from moesim.cost.pipeline import StepTimes, boundary_time, step_times
from moesim.cost.plan import Plan
from moesim.cost.stage import PricedOp
from moesim.cost.transports.deduplicated import Deduplicated
from moesim.matrix.choices import Choices
from moesim.timeline.run import Run, run
from moesim.timeline.step import StepGraph
from moesim.workload.fusions.permute import PASSES
from moesim.workload.ops import ExpertLeg, FusedExperts, Message, Work

AGAIN = " again"
"""What the name of a repeated operation ends with."""


Terms = dict[str, Any]
"""A quantity by the parts that add up to it; where traffic makes it, by the class of the traffic. A part may be a function
that works it out when it is asked for."""


def _moves_rows(priced: PricedOp) -> bool:
    """Whether an operation sends routed rows or brings them into another order for it."""
    return isinstance(priced.op.work, ExpertLeg) or priced.op.name.startswith(PASSES)


class Undisturbed(Plan):
    """A plan in which kernels and communication beside each other lose nothing: what they lose is a bottleneck of its own."""

    def contention(self, kind: str) -> Contention:
        """Nothing. [-]"""
        return replace(super().contention(kind), kernels=0.0, exchange=0.0, gathers=0.0, by_category={})


@dataclass(frozen=True)
class Timed:
    """A step that was run, and the same with each class of communication for nothing. [s]"""

    graph: StepGraph
    result: Run
    rows: tuple[str, ...]

    def makespan(self, without: str = "") -> Numeric:
        """Time of the step, one class left out. [s]"""
        return np.asarray(self._makespan[self.row(without)])

    def row(self, without: str) -> int:
        """Where a class is left out; where nothing is if the step has none of it."""
        return self.rows.index(without if without in self.rows else "")

    @cached_property
    def _makespan(self) -> NDArray[np.float64]:
        return np.asarray(self.result.makespan)


class Step:
    """What a plan alone decides: priced layers, memory, and times; cases that differ in choices share it.

    Parameters
    ----------
    plan
        The plan.
    shared
        Layers and prices that it has in common with other plans of its situation.
    alike
        A step whose layers are the same.
    """

    def __init__(self, plan: Plan, shared: Once, alike: Step | None = None) -> None:
        self.plan, self.shared, self._alike = plan, shared, alike
        self._timed: dict[bool, Timed] = {}
        self._ops: dict[bool, list[tuple[PricedOp, float]]] = {}
        self._messages: dict[bool, list[tuple[str, Message, float]]] = {}
        self._legs: dict[bool, list[tuple[PricedOp, ExpertLeg, float]]] = {}

    @cached_property
    def blocks(self) -> Blocks:
        """Priced layers; of half a micro-batch where halves overlap. Those of a step whose layers are alike serve."""
        if self._alike is not None:
            return self._alike.blocks
        return price_blocks(self.plan.half if self.plan.strategy.two_batch_overlap else self.plan, self.shared)

    @cached_property
    def whole(self) -> Blocks:
        """Priced layers of a whole micro-batch."""
        if self._alike is not None:
            return self._alike.whole
        return price_blocks(self.plan, self.shared) if self.plan.strategy.two_batch_overlap else self.blocks

    @cached_property
    def memory(self) -> tuple[RankMemory, ...]:
        """Memory of each pipeline rank. [B]"""
        return rank_memory(self.plan, self.whole)

    @cached_property
    def tight_memory(self) -> tuple[RankMemory, ...]:
        """The same with buffers made to measure: of rows at work alone. [B]"""
        tight = self.plan.strategy.replace(sync_free=False)
        if self.plan.setting.products.padding is not None:
            tight = tight.replace(expert_gemm="grouped")
        if tight == self.plan.strategy:
            return self.memory
        plan = replace(self.plan, strategy=tight)
        return rank_memory(plan, price_blocks(plan, self.shared))

    @cached_property
    def uses(self) -> list[tuple[PricedBlock, float]]:
        """Each block and how often a rank runs it in a step, on average. [-]"""
        count: dict[int, float] = {}
        found: dict[int, PricedBlock] = {}
        passes = self.plan.num_micro_batches * (2 if self.plan.strategy.two_batch_overlap else 1)
        for chunk in self.plan.of_stages(lambda stage: chunk_blocks(self.plan, stage, self.blocks)):
            for block in chunk:
                found[id(block)] = block
                count[id(block)] = count.get(id(block), 0.0) + 1.0
        share = passes / self.plan.schedule.pipelines / self.plan.strategy.pp
        return [(block, count[key] * share) for key, block in found.items()]

    def ops(self, moves: bool) -> list[tuple[PricedOp, float]]:
        """Every operation and how often a rank runs it in a step; `moves`: routed rows have to be sent. [-]"""
        if moves not in self._ops:
            everything = ((priced, times) for block, times in self.uses for priced in (*block.forward, *block.backward))
            self._ops[moves] = [one for one in everything if moves or not _moves_rows(one[0])]
        return self._ops[moves]

    def messages(self, moves: bool) -> list[tuple[str, Message, float]]:
        """Class of every message inside of layers, the message, and how often a step has it. [-]"""
        if moves not in self._messages:
            self._messages[moves] = [
                (priced.op.category, priced.op.work, times)
                for priced, times in self.ops(moves)
                if isinstance(priced.op.work, Message)
            ]
        return self._messages[moves]

    def legs(self, moves: bool) -> list[tuple[PricedOp, ExpertLeg, float]]:
        """Every leg of the expert exchange, those inside of persistent kernels too, and how often a step has it. [-]"""
        if moves not in self._legs:
            self._legs[moves] = [
                (priced, leg, times) for priced, times in self.ops(moves) for leg in _legs(priced.op.work)
            ]
        return self._legs[moves]

    def timed(self, moves: bool) -> Timed:
        """The step, and without each class of communication that it has; `moves`: routed rows have to be sent."""
        if moves not in self._timed:
            run_together([(self, moves)])
        return self._timed[moves]

    def _unrun(self, moves: bool) -> tuple[StepTimes, tuple[str, ...]]:
        """The step before it is run, and the class that each row of its columns leaves out."""
        present = {name: np.any(np.asarray(self.plan.mesh.size(name)) > 1) for name in ("ep", "tp", "cp", "pp")}
        rows = ("", *(name for name, any_of_it in present.items() if any_of_it), "dp")
        shape = (len(rows), *self.plan.shape)
        given = {one.name: getattr(self.plan, one.name) for one in fields(self.plan) if one.init}
        plan = Undisturbed(**{**given, "shape": shape})
        keep = {}
        for row, name in enumerate(rows[1:], start=1):
            hidden: NDArray[np.float64] = np.ones((len(rows), *(1,) * len(self.plan.shape)))
            hidden[row] = 0.0
            keep[name] = hidden * (name != "ep" or moves)
        return step_times(plan, self.whole, keep), rows


def _legs(work: Work) -> tuple[ExpertLeg, ...]:
    """Legs of the expert exchange in an operation."""
    if isinstance(work, FusedExperts):
        return work.dispatch, work.combine
    return (work,) if isinstance(work, ExpertLeg) else ()


COLUMNS = 1024
"""Columns of a batch of steps: so many stay in cache. [-]"""


def run_together(wanted: Iterable[tuple[Step, bool]]) -> None:
    """Run steps that were not run yet; those that have a graph in common are columns of one run.

    `wanted`: each step, and whether routed rows have to be sent.
    """
    alike: dict[tuple[int, tuple[int, ...]], list[tuple[Step, bool, StepTimes, tuple[str, ...]]]] = {}
    for step, moves in dict.fromkeys(wanted):
        if moves not in step._timed:
            times, rows = step._unrun(moves)
            alike.setdefault((id(times.graph), times.durations.shape[1:]), []).append((step, moves, times, rows))
    for (_, shape), several in alike.items():
        most = max(COLUMNS // math.prod(shape), 1)
        for low in range(0, len(several), most):
            batch = several[low : low + most]
            graph = batch[0][2].graph
            durations, delays = (
                np.stack([getattr(times, name) for _, _, times, _ in batch], axis=1) for name in ("durations", "delays")
            )
            result = run(graph.graph, durations, delays)
            for index, (step, moves, _, rows) in enumerate(batch):
                step._timed[moves] = Timed(graph, result.at(index), rows)


class Case:
    """A step and how the method is implemented.

    Counts are per rank and step, on average over the pipeline ranks.
    """

    def __init__(self, step: Step, choices: Choices) -> None:
        self.step, self.plan, self.choices = step, step.plan, choices
        self._read: dict[Callable[[Case], Terms], Terms] = {}

    def read(self, reading: Callable[[Case], Terms]) -> Terms:
        """A reading of the case; each is done once."""
        if reading not in self._read:
            self._read[reading] = reading(self)
        return self._read[reading]

    @property
    def blocks(self) -> Blocks:
        """Priced layers."""
        return self.step.blocks

    @property
    def memory(self) -> tuple[RankMemory, ...]:
        """Memory of each pipeline rank. [B]"""
        return self.step.memory

    @property
    def tight_memory(self) -> tuple[RankMemory, ...]:
        """The same with buffers made to measure: of rows at work alone. [B]"""
        return self.step.tight_memory

    @property
    def uses(self) -> list[tuple[PricedBlock, float]]:
        """Each block and how often a rank runs it in a step, on average. [-]"""
        return self.step.uses

    @property
    def timed(self) -> Timed:
        """The step, and without each class of communication that it has."""
        return self.step.timed(self.choices.movement == "sent")

    @property
    def ranks(self) -> int:
        """Pipeline ranks. [-]"""
        return self.plan.strategy.pp

    @property
    def passes(self) -> int:
        """Micro-batches, or halves of them, of a pipeline in a step. [-]"""
        return self.plan.num_micro_batches * (2 if self.plan.strategy.two_batch_overlap else 1)

    def ops(self) -> list[tuple[PricedOp, float]]:
        """Every operation and how often a rank runs it in a step. [-]"""
        return self.step.ops(self.choices.movement == "sent")

    def messages(self, category: str) -> list[tuple[Message, float]]:
        """Messages of a class inside of layers, with how often a rank has each in a step. [-]"""
        every = self.step.messages(self.choices.movement == "sent")
        return [(message, times) for kind, message, times in every if kind == category]

    def legs(self) -> list[tuple[PricedOp, ExpertLeg, float]]:
        """Every leg of the expert exchange, those inside of persistent kernels too."""
        return self.step.legs(self.choices.movement == "sent")

    @property
    def deduplicates(self) -> bool:
        """Whether the transport sends a token once to a place, however many of its experts are there."""
        return isinstance(self.plan.transport, Deduplicated)

    @property
    def exchanges(self) -> Numeric:
        """1 where rows leave the rank, else 0. [-]"""
        sent = self.plan.model.moe is not None and self.choices.movement == "sent"
        return np.greater(self.plan.mesh.ep, 1) * sent * 1.0

    @property
    def captured(self) -> bool:
        """Whether a CUDA graph holds the routed experts."""
        return self.plan.captures("moe")

    @property
    def boundaries(self) -> list[int]:
        """Stages behind which activations go to another rank."""
        ranks = self.plan.stage_rank
        return [stage for stage, (here, there) in enumerate(pairwise(ranks)) if here != there]

    @property
    def boundary_bytes(self) -> Numeric:
        """Bytes of one micro-batch over one boundary, one way. [B]"""
        return 2 * self.plan.setting.local_tokens * self.plan.model.hidden

    @cached_property
    def boundary_seconds(self) -> Numeric:
        """Time in which a rank sends over its boundaries, both ways. [s]"""
        total: Numeric = sum((boundary_time(self.plan, stage) for stage in self.boundaries), 0.0)
        return 2 * total * self.plan.num_micro_batches / self.ranks
