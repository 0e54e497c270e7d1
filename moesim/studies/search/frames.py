"""One shape of a pipeline over the columns in which it is legal: what does not depend on the price of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.memory import rank_state, routed_layers, total
from moesim.cost.pipeline import boundary_time
from moesim.cost.plan import Plan
from moesim.cost.replication import stage_reduction_time
from moesim.cost.update import optimizer_time
from moesim.problem import Problem
from moesim.studies.search.holding import Holdings, Kinds, Rank
from moesim.studies.search.legality import Standing
from moesim.studies.search.tables import Array, StageKinds, column_plan, wide
from moesim.workload.strategy import Strategy


@dataclass(frozen=True, eq=False)
class BusyRank:
    """A pipeline rank that may be the last one done.

    ``work``: how many stages of each kind it runs; ``before``: stages of each kind that a micro-batch passes before its
    first, on each pipeline that runs through it; ``sends``: seconds of the messages behind its own chunks, and
    ``sent_before`` of those on the way to it and behind it. [-, s]
    """

    work: Array
    before: tuple[Array, ...]
    sends: Numeric
    sent_before: tuple[Numeric, ...]


@dataclass(frozen=True, eq=False)
class States:
    """What ranks hold whatever they run: all the time, beside the backward, and beside the optimizer. (rows, n) [B]

    ``rows``: by the kinds of the stages of a rank. What is the same in all columns has one.
    """

    rows: Mapping[tuple[int, ...], int]
    base: Array
    casts: Array
    update: Array


@dataclass(frozen=True, eq=False)
class Held:
    """Columns of a frame in which ranks hold the same, and what they hold."""

    columns: NDArray[np.int64]
    ranks: tuple[Rank, ...]

    @cached_property
    def moments(self) -> tuple[Array, NDArray[np.int64]]:
        """Fullest moments of all ranks, and where those of each begin. (moments, 2 kinds), (ranks,)"""
        lengths = [len(rank.moments) for rank in self.ranks]
        return np.vstack([rank.moments for rank in self.ranks]).astype(float), np.cumsum([0, *lengths[:-1]])


@dataclass(frozen=True, eq=False)
class Frame:
    """A shape over its legal columns.

    ``columns``: places of the columns in their part; ``kinds``: those of stages that occur; ``tail``: what follows the
    last backward at least. (n,) [s] ``stage_kinds``: place of the kind of each stage among ``kinds``; ``sends``:
    messages behind each stage that hold up its rank [s]; ``extra_warmup``: forwards issued early.
    """

    plan: Plan
    columns: NDArray[np.int64]
    micro_batches: Array
    kinds: tuple[int, ...]
    busy: tuple[BusyRank, ...]
    tail: Array
    stage_kinds: tuple[int, ...]
    sends: tuple[Numeric, ...]
    extra_warmup: int
    _states: Callable[[], States]
    _holding: Callable[[], tuple[Held, ...]]

    @cached_property
    def states(self) -> States:
        """What ranks hold whatever they run; worked out when memory first asks."""
        return self._states()

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """What ranks hold at their fullest, worked out when memory first asks."""
        return self._holding()

    @cached_property
    def least_bytes(self) -> Array:
        """What the largest rank holds at least, whatever it runs: in the backward or for the optimizer. (n,) [B]"""
        states = self.states
        return wide((states.base + np.maximum(states.casts, states.update)).max(axis=0), self.plan.shape)


def frame(
    problem: Problem,
    strategy: Strategy,
    standing: Standing,
    shared: tuple[StageKinds, Holdings],
    columns: NDArray[np.int64],
) -> Frame:
    """What a shape has the same for all methods of a layer.

    Parameters
    ----------
    problem, strategy
        The job, and a strategy with the shape, over the legal columns only.
    standing
        What is known of the shape, for all columns of its part.
    shared
        Kinds of stages, and what ranks hold, of the whole search.
    columns
        Places of the legal columns in the part. (n,)
    """
    stages, micro_batches = standing.stages, standing.micro_batches[columns]
    kinds_of, holdings = shared
    plan = column_plan(problem, strategy, stages)
    kinds = np.array(kinds_of.of(stages))
    owners = np.array(plan.stage_rank)
    used = tuple(int(kind) for kind in np.unique(kinds))
    local = np.searchsorted(used, kinds)
    owned = [np.flatnonzero(owners == rank) for rank in range(strategy.pp)]
    last_of = {tuple(local[stages_].tolist()): rank for rank, stages_ in enumerate(owned)}
    first_of: dict[tuple[int, ...], int] = {}
    for rank, stages_ in enumerate(owned):
        first_of.setdefault(tuple(local[stages_].tolist()), rank)
    sends, extra = _Sends(plan), _extra_warmup(problem, strategy)
    busy = tuple(_busy(plan, owned[rank], local, len(used), sends) for rank in sorted(set(last_of.values())))
    tails = [_tail(plan, rank, owned[rank]) for rank in sorted({*last_of.values(), *first_of.values()})]

    def states() -> States:
        found = [rank_state(plan, rank, owned[rank].tolist()) for rank in first_of.values()]
        base, casts, update = zip(*((total(one.base), one.casts, one.update) for one in found), strict=True)
        rows = {key: row for row, key in enumerate(first_of)}
        return States(rows, stacked(base, plan.shape), stacked(casts, plan.shape), stacked(update, plan.shape))

    def holding() -> tuple[Held, ...]:
        first = [stages[int(np.argmax(local == kind))] for kind in range(len(used))]
        routed = np.array([routed_layers(plan, stage) for stage in first])
        return _held(plan, holdings, extra, Kinds(local, np.array([one.loss for one in first]), routed), micro_batches)

    return Frame(
        plan,
        columns,
        micro_batches,
        used,
        busy,
        np.minimum.reduce([wide(one, plan.shape) for one in tails]),
        tuple(local.tolist()),
        tuple(sends.behind),
        extra,
        states,
        holding,
    )


def stacked(values: Sequence[Numeric], shape: tuple[int, ...]) -> Array:
    """Numbers as rows, of one column where none of them has several."""
    if not any(map(np.ndim, values)):
        return np.array(values, dtype=float).reshape(-1, 1)
    return np.array([wide(value, shape) for value in values])


def _extra_warmup(problem: Problem, strategy: Strategy) -> int:
    told = problem.software.constants.get("overlap_ep_extra_warmup")
    return int(told.value) if told and strategy.overlap_ep else 0


class _Sends:
    """Messages over the boundaries behind stages that hold up their rank; none where they overlap."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._length = len(plan.stages) // plan.schedule.pipelines
        blocking = not plan.strategy.overlap_p2p
        self.behind: list[Numeric] = [
            boundary_time(plan, stage) if blocking and (stage + 1) % self._length else 0.0
            for stage in range(len(plan.stages) - 1)
        ] + [0.0]

    def own(self, stages: NDArray[np.int64]) -> Numeric:
        """Sends of a micro-batch, forward and backward, of a rank. [s]"""
        total: Numeric = 0.0
        for stage in stages:
            total = total + self.behind[stage]
            if stage % self._length:
                total = total + self.behind[stage - 1]
        return total

    def before(self, stage: int) -> Numeric:
        """Sends on the way of a micro-batch to a stage, and of a whole backward back from the stage before it. [s]"""
        first = stage - stage % self._length
        total: Numeric = 0.0
        for one in range(first, stage):
            total = total + self.behind[one]
        for one in range(first, stage - 1):
            total = total + (0.0 if self._plan.schedule.splits else self.behind[one])
        return total


def _busy(plan: Plan, owned: NDArray[np.int64], local: NDArray[np.int64], kinds: int, sends: _Sends) -> BusyRank:
    length = len(local) // plan.schedule.pipelines
    firsts = [int(owned[owned // length == pipeline].min()) for pipeline in np.unique(owned // length)]
    before = [np.bincount(local[one - one % length : one], minlength=kinds).astype(float) for one in firsts]
    work = np.bincount(local[owned], minlength=kinds).astype(float)
    return BusyRank(work, tuple(before), sends.own(owned), tuple(sends.before(one) for one in firsts))


def _tail(plan: Plan, rank: int, owned: NDArray[np.int64]) -> Any:
    """Optimizer of a rank, and reductions that nothing hides. [s]"""
    total = optimizer_time(plan, rank)
    sharding, strategy = plan.sharding, plan.strategy
    once = not sharding.per_micro_batch or sharding.inside_node
    if once and not strategy.overlap_grad_reduce and not strategy.stale_gradients:
        for stage in owned:
            total = total + stage_reduction_time(plan, int(stage))
    return total


def _held(plan: Plan, holdings: Holdings, extra_warmup: int, kinds: Kinds, micro_batches: Array) -> tuple[Held, ...]:
    strategy = plan.strategy
    counts, which = np.unique(micro_batches, return_inverse=True)
    made: dict[int, tuple[tuple[Rank, ...], list[int]]] = {}
    for place, count in enumerate(counts.tolist()):
        shape = (strategy.pp, int(count), strategy.vpp, extra_warmup)
        ranks = holdings.ranks(strategy.schedule, shape, kinds, merged=strategy.overlap_ep)
        made.setdefault(id(ranks), (ranks, []))[1].append(place)
    return tuple(Held(np.flatnonzero(np.isin(which, places)), ranks) for ranks, places in made.values())
