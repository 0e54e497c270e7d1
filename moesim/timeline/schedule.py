"""What a pipeline schedule is: where stages live and in which order each rank runs them.

Notation as in Narayanan 2021: p pipeline ranks, m micro-batches, v virtual chunks a rank, S = p v stages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import Violation
from moesim.base.numeric import Numeric
from moesim.timeline.graph import IntArray


class Op(IntEnum):
    """What a slot computes: forward, whole backward, or the two parts of a split backward."""

    F = 0
    BW = 1
    B = 2
    W = 3


class Slot(NamedTuple):
    """One step of a rank's program.

    `paired` marks a forward of the steady state that may run as one task with the backward in the next slot.
    """

    op: Op
    stage: int
    micro_batch: int
    paired: bool = False


Program = IntArray | Sequence[Slot]
"""What a rank runs, in order: slots, or the same as an array of four columns, which is built faster."""


def program_array(program: Program) -> IntArray:
    """Program as an array with the columns op, stage, micro-batch, paired."""
    return np.asarray(program, dtype=np.int64).reshape(-1, 4)


def program_slots(program: Program) -> list[Slot]:
    """Program as slots, for people and tests."""
    return [Slot(Op(op), stage, mb, bool(paired)) for op, stage, mb, paired in program_array(program).tolist()]


def one_forward_one_backward(forward: IntArray, backward: IntArray, warmup: int) -> IntArray:
    """Program of `warmup` forwards, then pairs of a forward and a backward, then the backwards that are left.

    Parameters
    ----------
    forward, backward
        Stage and micro-batch of each forward and of each backward, in order. (n, 2)
    warmup
        Forwards before the first backward; all n where it is larger.
    """
    n = len(forward)
    warmup = min(warmup, n)
    pairs = n - warmup
    program = np.zeros((2 * n, 4), dtype=np.int64)
    program[:, 0] = Op.BW
    forward_place = np.concatenate([np.arange(warmup), warmup + 2 * np.arange(pairs)])
    program[forward_place, 0] = Op.F
    program[forward_place, 1:3] = forward
    program[forward_place[warmup:], 3] = True
    backward_place = np.concatenate([warmup + 1 + 2 * np.arange(pairs), np.arange(warmup + 2 * pairs, 2 * n)])
    program[backward_place, 1:3] = backward
    return program


def held_chunks(program: Program) -> tuple[IntArray, IntArray]:
    """Count what a rank keeps for the backward, whenever the next slot lets go of some.

    Returns
    -------
    stages
        Stages of the rank, ascending. (c,)
    held
        Forwards issued and not yet taken back, for each such moment and stage; distinct rows. (k, c)

    Notes
    -----
    The count depends on the order alone, not on seconds. A chunk is kept to the end of its BW, or of its W where the
    backward is split.
    """
    slots = program_array(program)
    stages, chunk = np.unique(slots[:, 1], return_inverse=True)
    released = np.isin(slots[:, 0], [Op.BW, Op.W])
    change = np.zeros((len(slots), len(stages)), dtype=np.int64)
    change[np.arange(len(slots)), chunk.ravel()] = np.where(slots[:, 0] == Op.F, 1, np.where(released, -1, 0))
    held = np.cumsum(change, axis=0)
    return stages, np.unique(held[:-1][released[1:]], axis=0)


class Schedule(ABC):
    """A pipeline schedule; a file of `moesim.timeline.schedules` holds one and registers an instance.

    A schedule has no state: everything follows from pp, the micro-batches and vpp.
    """

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:  # noqa: ARG002
        """Rules that are broken, by definition of the schedule; rules of a framework live in its software spec."""
        return []

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage; stage q on rank q mod p unless a schedule says otherwise."""
        return tuple(stage % pp for stage in range(pp * vpp))

    @abstractmethod
    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank.

        Parameters
        ----------
        pp, micro_batches, vpp
            Pipeline ranks, micro-batches of a step, chunks a rank.
        extra_warmup
            Forwards issued earlier than the schedule needs, so that the two halves of a steady-state pair do not
            depend on each other; never more than there are.
        """

    def in_flight(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> tuple[int, ...]:
        """Most chunks that each rank keeps for the backward at once."""
        programs = self.order(pp, micro_batches, vpp, extra_warmup)
        return tuple(int(held_chunks(program)[1].sum(axis=1).max()) for program in programs)

    def lower_bound(
        self, pp: int, micro_batches: int, vpp: int, forward: NDArray[np.float64], backward: NDArray[np.float64]
    ) -> Numeric:
        r"""Time that no run of the schedule can beat. [s]

        .. math:: \max_r \Big( \sum_{q < q_r} (F_q + B_q) + m \sum_{q \text{ on } r} (F_q + B_q) \Big)

        A rank cannot start before a micro-batch has come through the stages below its first, q_r; after its last
        backward the gradient still has to go back through them.

        Parameters
        ----------
        pp, micro_batches, vpp
            As in `order`.
        forward, backward
            Seconds of each stage for one micro-batch, F and B. (S, *batch) [s]

        Notes
        -----
        Holds for whole backwards; a schedule that splits them overrides it. Ignores delays. Where pairs are merged,
        F + B must not exceed the time of the pair.
        """
        stage = np.asarray(forward, dtype=np.float64) + np.asarray(backward, dtype=np.float64)
        ranks = np.array(self.stage_rank(pp, vpp))
        # Running sums add in the same order for one column and for many, which a plain sum does not.
        through = np.concatenate([np.zeros_like(stage[:1]), np.cumsum(stage, axis=0)])
        bounds = [through[-1]]
        for rank in range(pp):
            own = np.flatnonzero(ranks == rank)
            bounds.append(through[own[0]] + micro_batches * np.cumsum(stage[own], axis=0)[-1])
        longest = np.max(bounds, axis=0)
        return longest if np.ndim(longest) else float(longest)


def single_chunk(name: str, vpp: int) -> Iterable[Violation]:
    """Rule of the schedules that know no virtual chunks."""
    if vpp != 1:
        yield Violation(f"{name}-vpp", f"{name} runs one chunk a rank, not vpp={vpp}", "vpp=1", "narayanan2021, 2.2")
