"""What the tasks of a training step are, and their keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, overload

from moesim.timeline.graph import IntArray

KINDS = ("F", "BW", "B", "W", "OV", "reduce", "gather", "optimizer")
# The first four are those of moesim.timeline.schedule.Op.
F, BW, B, W, OV, REDUCE, GATHER, OPTIMIZER = range(len(KINDS))
LANES = ("sm", "nic")
SM, NIC = range(len(LANES))


class TaskTable(NamedTuple):
    """What each task is; -1 where a column does not apply.

    Parameters
    ----------
    kind
        Index into `KINDS`. (n,)
    rank
        Pipeline rank. (n,)
    stage, micro_batch
        What it computes; of an OV, its forward. (n,)
    back_stage, back_micro_batch
        The backward of an OV. (n,)
    """

    kind: IntArray
    rank: IntArray
    stage: IntArray
    micro_batch: IntArray
    back_stage: IntArray
    back_micro_batch: IntArray


class TaskKeys(Sequence[Hashable]):
    """Keys of the tasks of a step, made when asked for: a step has a hundred thousand of them.

    ``("F", stage, micro_batch)`` and so on, ``("OV", stage, micro_batch, back_stage, back_micro_batch)``,
    ``("reduce", stage)``, ``("gather", stage)``, ``("optimizer", rank)``.
    """

    def __init__(self, columns: IntArray) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, index: int) -> Hashable: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hashable]: ...
    def __getitem__(self, index: int | slice) -> Hashable | Sequence[Hashable]:
        if isinstance(index, slice):
            return TaskKeys(self._columns[index])
        kind, rank, *rest = self._columns[index].tolist()
        return (KINDS[kind], *((rank,) if kind == OPTIMIZER else (number for number in rest if number >= 0)))

    def __iter__(self) -> Iterator[Hashable]:
        return (self[index] for index in range(len(self)))
