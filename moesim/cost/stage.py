"""Stage graphs: the operations of a model chunk on the lanes of one rank, and how long the chunk takes.

Lanes are streams: ``host`` launches kernels one after another, ``sm`` computes, ``tp``, ``cp`` and ``ep`` carry the
tensor-parallel, context-parallel and expert messages, ``dp`` gathers split weights and reduces gradients. An operation starts when its launch, its inputs and its lane are ready. A host
sync makes the host wait for what the operation itself waits for, so the launches behind it are exposed. Each chunk starts
with the host at the same point as the device. What the host does between two chunks comes at the end of its lane, where
it hides behind what the device still has to do: without a sync the host is ahead by that much when the next one starts.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.chunk_graph import CP, DP, EP, SM, TP, ChunkTasks, Structure, Task, chunk_tasks, joined_chunks
from moesim.cost.contention import Contention, stretched
from moesim.timeline.run import critical_path, run_columns
from moesim.workload.ops import Op

SEGMENTS = ("combine", "attention", "dispatch", "experts")


@dataclass(frozen=True)
class HostTimes:
    """What the host does beside launches. [s]

    ``sync``: a read of the device and the wake-up behind it; ``chunk``: the schedule, its sends and the autograd engine
    around one forward or backward.
    """

    sync: Numeric
    chunk: Numeric = 0.0


class PricedOp(NamedTuple):
    """An operation with its time on its lane and the time the host takes to launch it. [s]"""

    op: Op
    seconds: Numeric
    launch: Numeric

    @property
    def lane(self) -> int:
        """Stream it runs on."""
        return _LANES.get(self.op.category, SM)


_LANES = {"tp": TP, "ep": EP, "cp": CP, "dp": DP}
Ops = tuple[PricedOp, ...]


@dataclass(frozen=True)
class Piece:
    """Consecutive operations of one chain; a chain is a forward or a backward that runs in order."""

    chain: int
    ops: Ops


@dataclass(frozen=True)
class ChunkTime:
    """Duration of a chunk with one column per variant. [s]"""

    seconds: NDArray[np.float64]
    _walk: Callable[[], dict[str, float]]

    @cached_property
    def categories(self) -> dict[str, float]:
        """Where the time of the first column goes; walked when it is first asked for, which a batch never does. [s]"""
        return self._walk()


def segments(ops: Ops) -> dict[str, Ops]:
    """Split a layer's operations by segment, order kept; the head of an MTP module goes with the combine next to it."""
    parts: dict[str, list[PricedOp]] = {name: [] for name in SEGMENTS}
    for priced in ops:
        parts[priced.op.segment if priced.op.segment in parts else "combine"].append(priced)
    return {name: tuple(part) for name, part in parts.items()}


def sequential(layers: Iterable[Ops]) -> tuple[Piece, ...]:
    """One chain: the layers one after another."""
    return tuple(Piece(0, ops) for ops in layers if ops)


def interleaved(forward: list[Ops], backward: list[Ops]) -> tuple[Piece, ...]:
    """Two chains, layer by layer: while one exchanges expert rows, the other computes.

    The order on the streams is that of Megatron-Core's combined 1F1B: combine of the backward beside attention of the
    forward, dispatch of the forward beside the experts of the backward, dispatch of the backward beside the experts of
    the forward, combine of the forward beside attention of the backward. Blocks without experts, and layers that the
    other chain lacks, run alone.
    """
    pieces: list[Piece] = []
    ahead, behind = list(forward), list(backward)
    split = {id(ops): segments(ops) for ops in (*forward, *backward)}  # equal layers share their pieces
    while ahead or behind:
        if ahead and not _has_experts(ahead[0]):
            pieces.append(Piece(0, ahead.pop(0)))
        elif behind and not _has_experts(behind[0]):
            pieces.append(Piece(1, behind.pop(0)))
        elif ahead and behind:
            front, back = split[id(ahead.pop(0))], split[id(behind.pop(0))]
            for chain, name in (
                (1, "combine"),
                (0, "attention"),
                (0, "dispatch"),
                (1, "experts"),
                (1, "dispatch"),
                (0, "experts"),
                (0, "combine"),
                (1, "attention"),
            ):
                pieces.append(Piece(chain, (front, back)[chain][name]))
        else:
            pieces.append(Piece(0, ahead.pop(0)) if ahead else Piece(1, behind.pop(0)))
    return tuple(piece for piece in pieces if piece.ops)


def two_batches(layers: list[Ops], backward: bool = False) -> tuple[Piece, ...]:
    """Two chains of the same layers, segment by segment: while one half exchanges rows, the other computes.

    The order on the streams is that of OLMo-core's two batches. Each leg has kernels of the other half beside it: the
    dispatch of the first half the attention of the second, that of the second the experts of the first, the combine of
    the first the experts of the second, and the combine of the second the attention of the first half in the next
    layer; what follows that combine is put behind this attention. A backward is the same in reverse. Blocks without
    experts run one half after the other.

    References
    ----------
    olmo-core, ep_no_sync_tbo_rowwise.py and the notes beside it, commits 0508dea8 and 3901ca97
    """
    pieces: list[Piece] = []
    behind: list[Piece] = []
    split = {id(ops): segments(ops) for ops in layers}
    for ops in reversed(layers) if backward else layers:
        if not _has_experts(ops):
            pieces += [Piece(0, ops), *behind, Piece(1, ops)]
            behind = []
            continue
        parts = split[id(ops)]
        turns = ((1, "attention"), (1, "dispatch"), (0, "experts"), (1, "experts"), (0, "combine"))
        pieces += [Piece(0, parts["attention"]), *behind, Piece(0, parts["dispatch"])]
        pieces += [Piece(half, parts[name]) for half, name in turns]
        behind = [Piece(1, parts["combine"])]
    pieces += behind
    return tuple(piece for piece in (reversed(pieces) if backward else pieces) if piece.ops)


def _has_experts(ops: Ops) -> bool:
    return any(priced.op.segment == "experts" for priced in ops)


Keep = Mapping[str, NDArray[np.float64]]
"""For each class that is hidden in some columns: 1 where its durations count, 0 where they do not. (columns,)"""


@dataclass(frozen=True, eq=False)
class ChunkWork:
    """A chunk that is ready to run: its operations in lane order, how long each takes, and its tasks.

    ``durations``: of the device, then of the launches, then of a host sync and of the
    host around a chain. (2 n + 2, *shape) [s]
    """

    flat: list[PricedOp]
    durations: NDArray[np.float64]
    tasks: ChunkTasks


def chunk_work(
    pieces: tuple[Piece, ...], shape: tuple[int, ...], host: HostTimes, sm_share: Numeric | Contention, keep: Keep
) -> ChunkWork:
    """Operations of a chunk with what they take beside each other.

    Parameters
    ----------
    pieces
        Operations in lane order.
    shape
        Shape of the columns that the prices span; ``()`` for scalars.
    host
        Time of a read of the device by the host, and of what the host does around each chain.
    sm_share
        Share of the SMs that a running expert transport takes from the kernels beside it, or what else they lose to each
        other. [-]
    keep
        Columns in which a class is hidden, for its exposure.
    """
    distinct: dict[int, int] = {}
    lists: list[Ops] = []
    for piece in pieces:
        if id(piece.ops) not in distinct:
            distinct[id(piece.ops)] = len(lists)
            lists.append(piece.ops)
    flat = [priced for ops in lists for priced in ops]
    names = [priced.op.category for priced in flat]
    device = _columns([priced.seconds for priced in flat], shape)
    for category, kept in keep.items():
        device[[name == category for name in names]] *= kept
    shown = keep.get("host", 1.0)
    launched = _columns([priced.launch for priced in flat], shape) * shown
    waits = _columns([host.sync * shown, host.chunk * shown], shape)
    lanes = np.array([priced.lane for priced in flat], dtype=np.int64)
    contention = sm_share if isinstance(sm_share, Contention) else Contention(sm_share)
    counts = _uses(pieces, distinct, lists)
    if flat:
        # gathers first: they slow all kernels alike, so that kernels with and without a leg beside them stay in proportion
        device = stretched(device, names, lanes == DP, lanes == SM, counts, Contention(contention.gathers))
        every = [(lanes == EP, lanes == SM)]
        for legs, kernels in _own_pairs(lists, lanes) if contention.own else every:
            device = stretched(device, names, legs, kernels, counts, contention)
    structures = tuple(_structure(ops) for ops in lists)
    tasks = chunk_tasks(structures, tuple((piece.chain, distinct[id(piece.ops)]) for piece in pieces))
    return ChunkWork(flat, np.concatenate([device, launched, waits]), tasks)


def chunk_times(works: list[ChunkWork]) -> list[ChunkTime]:
    """Longest path through the operations of each chunk; none waits for another, so they are run as one graph."""
    joined = joined_chunks(tuple(work.tasks for work in works))
    durations = np.concatenate([work.durations for work in works])
    makespans, first = run_columns(joined.graph, durations, groups=joined.finals)
    seconds = durations.reshape(len(durations), -1)[:, 0].copy()

    def walk(which: int) -> dict[str, float]:
        """Seconds of the critical path by category; they add up to the chunk's time. [s]"""
        totals: dict[str, float] = {}
        flat, low = works[which].flat, joined.first_rows[which]
        for row in joined.graph.duration_row[critical_path(first, joined.finals[which])].tolist():
            category = flat[row - low].op.category if row - low < len(flat) else "host"
            totals[category] = totals.get(category, 0.0) + float(seconds[row])
        return totals

    return [ChunkTime(makespan, partial(walk, which)) for which, makespan in enumerate(makespans)]


def chunk_time(
    pieces: tuple[Piece, ...], shape: tuple[int, ...], host: HostTimes, sm_share: Numeric | Contention, keep: Keep
) -> ChunkTime:
    """Longest path through the operations of one chunk, as :func:`chunk_work` takes them."""
    return chunk_times([chunk_work(pieces, shape, host, sm_share, keep)])[0]


def _columns(values: list[Numeric], shape: tuple[int, ...]) -> NDArray[np.float64]:
    columns = np.empty((len(values), *shape))
    for row, value in enumerate(values):
        columns[row] = value
    return columns


def _uses(pieces: tuple[Piece, ...], distinct: dict[int, int], lists: list[Ops]) -> NDArray[np.float64]:
    times = np.zeros(len(lists))
    for piece in pieces:
        times[distinct[id(piece.ops)]] += 1
    return np.repeat(times, [len(ops) for ops in lists])


Mask = NDArray[np.bool_]


def _own_pairs(lists: list[Ops], lanes: NDArray[np.int64]) -> list[tuple[Mask, Mask]]:
    """Each leg that has operations of its own layer beside it, and the kernels among them, up to where both are done."""
    pairs: list[tuple[Mask, Mask]] = []
    first = 0
    for ops in lists:
        for index, priced in enumerate(ops):
            leg = index - 1
            if not priced.op.beside or lanes[first + leg] != EP:
                continue
            end = next(later for later in range(index, len(ops)) if ops[leg].op.name in ops[later].op.needs)
            legs, kernels = np.zeros((2, len(lanes)), dtype=np.bool_)
            legs[first + leg] = True
            kernels[first + index : first + end] = lanes[first + index : first + end] == SM
            pairs.append((legs, kernels))
        first += len(ops)
    return pairs


def _structure(ops: Ops) -> Structure:
    positions = {priced.op.name: index for index, priced in enumerate(ops)}
    return tuple(
        Task(
            priced.lane,
            tuple(positions[name] for name in priced.op.needs),
            priced.op.host_sync,
            priced.op.beside,
            priced.op.prefetch,
            priced.op.detached,
        )
        for priced in ops
    )
