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


def backward_first(program: Program) -> IntArray:
    """Program with the backward of each pair that may run as one task before its forward.

    Such a pair takes the layers of its forward upwards and those of its backward downwards, and each layer of the
    backward lets go of what it kept before the next begins: both chunks are never held whole. A pair of one and the
    same micro-batch stays as it is.

    References
    ----------
    megatron-lm, ``TransformerModelChunkSchedulePlan.run`` (``pop_layer``, ``release_state``)
    """
    slots = program_array(program).copy()
    here, following = slots[:-1], slots[1:]
    paired = (here[:, 0] == Op.F) & (following[:, 0] == Op.BW) & (here[:, 3] == 1) & (here[:, 2] != following[:, 2])
    places = np.flatnonzero(paired)
    slots[places], slots[places + 1] = slots[places + 1].copy(), slots[places].copy()
    return slots


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
    stages, whole, waiting = kept_chunks(program)
    return stages, _distinct_rows(whole + waiting)


def kept_chunks(program: Program) -> tuple[IntArray, IntArray, IntArray]:
    """Count what a rank keeps, apart what only a weight gradient still needs.

    Returns
    -------
    stages
        Stages of the rank, ascending. (c,)
    whole, waiting
        Chunks whose backward has not run, and chunks whose B is done and whose W is not, for each moment at which the
        next slot lets go of some and each stage; distinct rows. (k, c)
    """
    slots = program_array(program)
    stages, chunk = np.unique(slots[:, 1], return_inverse=True)
    op = slots[:, 0]
    counts = []
    for up, down in (((Op.F,), (Op.BW, Op.B)), ((Op.B,), (Op.W,))):
        change = np.zeros((len(slots), len(stages)), dtype=np.int64)
        change[np.arange(len(slots)), chunk.ravel()] = np.isin(op, up) * 1 - np.isin(op, down)
        counts.append(np.cumsum(change, axis=0)[:-1][op[1:] != Op.F])
    rows = _distinct_rows(np.column_stack(counts))
    return stages, rows[:, : len(stages)], rows[:, len(stages) :]


def _distinct_rows(rows: IntArray) -> IntArray:
    """Rows without repetition, in ascending order; most moments of a long program are alike."""
    every = np.ascontiguousarray(rows)
    few = every[list({row.tobytes(): index for index, row in enumerate(every)}.values())]
    return np.asarray(few[np.lexsort(few.T[::-1])])


FILLED = 3
"""Micro-batches for each pipeline rank with which a schedule that settles is in its steady state."""


class Schedule(ABC):
    """A pipeline schedule; a file of `moesim.timeline.schedules` holds one and registers an instance.

    A schedule has no state: everything follows from pp, the micro-batches and vpp.

    Attributes
    ----------
    chunks
        Chunks a rank that it needs, vpp; None where several do.
    pipelines
        Whole pipelines that run through the same ranks, and so copies of the parameters that the ranks hold together.
        The stages of the second follow those of the first, and the micro-batches are split between them in order.
    splits
        Whether some backwards are split into input gradient (B) and weight gradient (W).
    pairs
        Whether it has steady-state pairs of a forward and a backward that may run as one task.
    settles
        Whether it fills the pipeline once: from three micro-batches a rank on, more of them are not held together.
    """

    chunks: int | None = 1
    pipelines: int = 1
    splits: bool = False
    pairs: bool = False
    settles: bool = False

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
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

    def alike(self, pp: int, micro_batches: int, vpp: int) -> int:
        """Return a number of micro-batches, at most this one, with which every rank holds the same at its fullest.

        Counting what ranks hold takes as long as the program, which is then that of a short step.
        """
        return min(micro_batches, FILLED * pp) if self.settles else micro_batches

    def lower_bound(
        self, pp: int, micro_batches: int, vpp: int, forward: NDArray[np.float64], backward: NDArray[np.float64]
    ) -> Numeric:
        r"""Time that no run of the schedule can beat. [s]

        .. math:: \max_r \Big( \min_{q \text{ on } r} \sum_{k < q} (F_k + B_k) + m \sum_{q \text{ on } r} (F_q + B_q) \Big)

        A rank cannot start before a micro-batch has come through the stages below its first; after its last
        backward the gradient still has to go back through them. Where backwards are split the last task of a rank may
        be a weight gradient, for which nobody waits: then only the forwards below count, without B_k.

        Parameters
        ----------
        pp, micro_batches, vpp
            As in `order`.
        forward, backward
            Seconds of each stage for one micro-batch, F and B (both parts where it is split). (S, *batch) [s]

        Notes
        -----
        Ignores delays. Where pairs are merged, F + B must not exceed the time of the pair.
        """
        first, second = np.asarray(forward, dtype=np.float64), np.asarray(backward, dtype=np.float64)
        work, passing = first + second, first if self.splits else first + second
        ranks = np.array(self.stage_rank(pp, vpp))
        length = len(ranks) // self.pipelines
        # Running sums add in the same order for one column and for many, which a plain sum does not.
        sums = [np.cumsum(passing[start : start + length], axis=0) for start in range(0, len(ranks), length)]
        below = np.concatenate([np.concatenate([np.zeros_like(total[:1]), total[:-1]]) for total in sums])
        bounds = [total[-1] for total in sums]
        for rank in range(pp):
            own = np.flatnonzero(ranks == rank)
            busy = micro_batches // self.pipelines * np.cumsum(work[own], axis=0)[-1]
            bounds.append(below[own].min(axis=0) + busy)
        longest = np.max(bounds, axis=0)
        return longest if np.ndim(longest) else float(longest)


def v_shape(pp: int) -> tuple[int, ...]:
    """Rank of each of the 2 p stages on a V: rank r holds r and 2p - 1 - r, so that rank 0 has both ends of the model."""
    return (*range(pp), *range(pp - 1, -1, -1))


def needs_chunks(name: str, needed: int, vpp: int, source: str) -> Iterable[Violation]:
    """Rule of the schedules that run a fixed number of chunks a rank."""
    if vpp != needed:
        chunks = "one chunk" if needed == 1 else f"{needed} chunks"
        yield Violation(f"{name}-vpp", f"schedule {name} runs {chunks} a rank, not vpp={vpp}", f"vpp={needed}", source)


def needs_ranks(name: str, least: int, pp: int, source: str) -> Iterable[Violation]:
    """Rule of the schedules that mean nothing on fewer ranks."""
    if pp < least:
        yield Violation(
            f"{name}-pp", f"{name} needs {least} pipeline ranks or more, not pp={pp}", f"pp>={least}", source
        )


def single_chunk(name: str, vpp: int) -> Iterable[Violation]:
    """Rule of the schedules that know no virtual chunks."""
    return needs_chunks(name, 1, vpp, "narayanan2021, 2.2")
