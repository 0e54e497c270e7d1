"""One shape of a pipeline over the columns in which it is legal: what does not depend on the price of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.cost.memory import RankState, held_chunks_of, rank_state, routed_layers
from moesim.cost.pipeline import boundary_time
from moesim.cost.plan import Plan
from moesim.cost.replication import stage_reduction_time
from moesim.cost.update import optimizer_time
from moesim.problem import Problem
from moesim.studies.search.tables import Array, StageKinds, column_plan, wide
from moesim.workload.stages import Stage
from moesim.workload.strategy import Strategy

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BusyRank:
    """A pipeline rank that may be the last one done.

    ``work``: how many stages of each kind it runs; ``before``: stages of each kind that a micro-batch passes before its
    first, on each pipeline that runs through it; ``sends``: seconds of the messages behind its own chunks, and
    ``sent_before`` of those on the way to it. [-, s]
    """

    work: Array
    before: tuple[Array, ...]
    sends: Array | float
    sent_before: tuple[Array | float, ...]


@dataclass(frozen=True, eq=False)
class HeldRank:
    """A pipeline rank that may have the peak of memory.

    ``kinds`` of its stages, and how many chunks of each it holds at moments of which none holds less of everything than
    another: whole, and waiting for a weight gradient. (moments, kinds); ``in_flight``: most layers whose rows are kept.
    """

    state: RankState
    kinds: tuple[int, ...]
    whole: Counts
    waiting: Counts
    in_flight: float


@dataclass(frozen=True, eq=False)
class Held:
    """Columns of a frame in which ranks hold the same, and what they hold."""

    columns: NDArray[np.int64]
    ranks: tuple[HeldRank, ...]


@dataclass(frozen=True, eq=False)
class Frame:
    """A shape over its legal columns.

    ``columns``: places of the columns in their part; ``kinds``: those of stages that occur; ``tail``: what follows the
    last backward at least. (n,) [s]
    """

    plan: Plan
    columns: NDArray[np.int64]
    micro_batches: Array
    kinds: tuple[int, ...]
    busy: tuple[BusyRank, ...]
    held: tuple[Held, ...]
    tail: Array
    single: bool


def frame(
    problem: Problem, strategy: Strategy, stages: tuple[Stage, ...], kinds_of: StageKinds, micro_batches: Array,
    columns: NDArray[np.int64],
) -> Frame:  # fmt: skip
    """What a shape has the same for all methods of a layer.

    Parameters
    ----------
    problem, strategy
        The job, and a strategy with the shape, over the legal columns only.
    stages
        Where the layers are.
    kinds_of
        Kinds of stages of the whole search.
    micro_batches, columns
        Of each column: micro-batches of a step, and its place in the part. (n,)
    """
    plan = column_plan(problem, strategy, stages)
    kinds = np.array(kinds_of.of(stages))
    owners = np.array(plan.schedule.stage_rank(strategy.pp, strategy.vpp))
    used = tuple(int(kind) for kind in np.unique(kinds))
    local = np.searchsorted(used, kinds)
    owned = [np.flatnonzero(owners == rank) for rank in range(strategy.pp)]
    last_of = {tuple(local[stages_]): rank for rank, stages_ in enumerate(owned)}
    first_of: dict[tuple[int, ...], int] = {}
    for rank, stages_ in enumerate(owned):
        first_of.setdefault(tuple(local[stages_]), rank)
    sends = _Sends(plan)
    busy = tuple(_busy(plan, owned[rank], local, len(used), sends) for rank in sorted(set(last_of.values())))
    tails = [_tail(plan, rank, owned[rank]) for rank in sorted({*last_of.values(), *first_of.values()})]
    states = {key: rank_state(plan, rank, [int(one) for one in owned[rank]]) for key, rank in first_of.items()}
    return Frame(
        plan,
        columns,
        micro_batches,
        used,
        busy,
        _held(problem, plan, owned, local, states, micro_batches),
        np.minimum.reduce([wide(one, plan.shape) for one in tails]),
        len(stages) == 1,
    )


class _Sends:
    """Messages over the boundaries behind stages that hold up their rank; none where they overlap."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._length = len(plan.stages) // plan.schedule.pipelines
        blocking = not plan.strategy.overlap_p2p
        self.behind: list[Array | float] = [
            boundary_time(plan, stage) if blocking and (stage + 1) % self._length else 0.0
            for stage in range(len(plan.stages) - 1)
        ] + [0.0]

    def own(self, stages: NDArray[np.int64]) -> Array | float:
        """Sends of a micro-batch, forward and backward, of a rank. [s]"""
        total: Array | float = 0.0
        for stage in stages:
            total = total + self.behind[stage]
            if stage % self._length:
                total = total + self.behind[stage - 1]
        return total

    def before(self, stage: int) -> Array | float:
        """Sends on the way of a micro-batch to a stage. [s]"""
        total: Array | float = 0.0
        for one in range(stage - stage % self._length, stage):
            total = total + self.behind[one]
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


def _held(
    problem: Problem,
    plan: Plan,
    owned: list[NDArray[np.int64]],
    local: NDArray[np.int64],
    states: dict[tuple[int, ...], RankState],
    micro_batches: Array,
) -> tuple[Held, ...]:
    strategy = plan.strategy
    warmup = problem.software.constants.get("overlap_ep_extra_warmup")
    extra = int(warmup.value) if warmup and strategy.overlap_ep else 0
    routed = np.array([routed_layers(plan, stage) for stage in plan.stages])
    groups: dict[object, tuple[list[NDArray[np.int64]], list[tuple[Any, ...]]]] = {}
    for count in np.unique(micro_batches):
        alike = plan.schedule.alike(strategy.pp, int(count), strategy.vpp)
        rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for stages, whole, waiting in held_chunks_of(plan.schedule, strategy.pp, alike, strategy.vpp, extra):
            key = tuple(local[stages])
            kinds, folded = np.unique(local[stages], return_inverse=True)
            fold = np.eye(len(kinds), dtype=np.int64)[folded]
            both = _most(np.hstack([whole @ fold, waiting @ fold]))
            in_flight = float((whole @ routed[stages]).max())
            rows.setdefault((key, both.tobytes(), in_flight), (key, tuple(kinds.tolist()), both, in_flight))
        here = np.flatnonzero(micro_batches == count)
        groups.setdefault(tuple(rows), ([], list(rows.values())))[0].append(here)
    return tuple(
        Held(
            np.concatenate(columns),
            tuple(
                HeldRank(states[key], kinds, both[:, : len(kinds)], both[:, len(kinds) :], in_flight)
                for key, kinds, both, in_flight in _largest(rows, plan, states)
            ),
        )
        for columns, rows in groups.values()
    )


def _most(rows: Counts) -> Counts:
    """Rows of which none is at most another one everywhere; one of those that are the same."""
    rows = np.unique(rows, axis=0)
    kept: list[Counts] = []
    for row in rows[np.argsort(-rows.sum(axis=1), kind="stable")]:
        if not any((row <= other).all() for other in kept):
            kept.append(row)
    return np.array(kept)


def _largest(
    rows: list[tuple[Any, ...]], plan: Plan, states: dict[tuple[int, ...], RankState]
) -> list[tuple[Any, ...]]:
    """Ranks of which none holds at most what another one of the same stages holds; those with a loss all stay."""
    found: list[tuple[Any, ...]] = []
    for one in sorted(rows, key=lambda row: -int(row[2].sum(axis=1).max())):
        key, _, both, in_flight = one
        smaller = any(
            other[0] == key
            and in_flight <= other[3]
            and all(any((row <= most).all() for most in other[2]) for row in both)
            for other in found
        )
        if states[key].ends or not smaller:
            found.append(one)
    return found
