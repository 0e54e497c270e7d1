"""Pieces of the programs that split backwards: what several schedules share."""

from __future__ import annotations

from collections import Counter

from moesim.timeline.schedule import Op, Slot


def one_chunk_program(rank: int, micro_batches: int, warmup: int, waiting: int) -> list[Slot]:
    """Program of a rank with one chunk: warm-up, then F, B and, once more than `waiting` of them wait, a W each time.

    Parameters
    ----------
    rank, micro_batches
        The rank, which is its stage, and the micro-batches of the step.
    warmup
        Forwards before the first F B of the steady state.
    waiting
        Weight gradients put off in the steady state; after the last forward every B is followed by a W.
    """
    warmup = min(micro_batches, warmup)
    slots = [Slot(Op.F, rank, i) for i in range(warmup)]
    weights = 0
    for i in range(micro_batches):
        if i + warmup < micro_batches:
            slots.append(Slot(Op.F, rank, i + warmup))
        slots.append(Slot(Op.B, rank, i))
        if i + 1 - weights > waiting or i + warmup >= micro_batches:
            slots.append(Slot(Op.W, rank, weights))
            weights += 1
    return slots + [Slot(Op.W, rank, i) for i in range(weights, micro_batches)]


class Counting:
    """Collects the slots of a rank; each (op, stage) counts its own micro-batches, from `first` of the stage."""

    def __init__(self, first: dict[int, int] | None = None) -> None:
        self.slots: list[Slot] = []
        self._first = first or {}
        self._done: Counter[tuple[Op, int]] = Counter()
        self._waiting: list[tuple[int, int]] = []

    def done(self, op: Op, stage: int) -> int:
        """How many of that kind have been added."""
        return self._done[op, stage]

    def add(self, times: int, *tasks: tuple[Op, int], paired: bool = False) -> None:
        """Add the tasks, in order, so many times; `paired` marks their forwards."""
        for _ in range(times):
            for op, stage in tasks:
                # A whole backward and an input gradient are the same turn of a stage.
                kind = Op.B if op == Op.BW else op
                micro_batch = self._first.get(stage, 0) + self._done[kind, stage]
                self._done[kind, stage] += 1
                self.slots.append(Slot(op, stage, micro_batch, paired and op == Op.F))
                if op == Op.B:
                    self._waiting.append((stage, micro_batch))

    def weight(self) -> None:
        """Add the weight gradient that has waited longest."""
        self.slots.append(Slot(Op.W, *self._waiting.pop(0)))
