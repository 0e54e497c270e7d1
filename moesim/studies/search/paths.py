"""Least time of a block on each lane, and of paths through it, without what other blocks and lanes add."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.chunk_graph import EP
from moesim.cost.chunk_graph import SM as COMPUTE
from moesim.cost.stage import Ops

Array = NDArray[np.float64]
SM, EXCHANGE, HOST, CHAIN, LOOP, FIRST_OUT = range(6)
"""Rows of :func:`block_pass`."""


def block_pass(ops: Ops, sync: Numeric, shape: tuple[int, ...]) -> Array:
    r"""Seconds of one block that every run of a chunk spends. (6, n) [s]

    Rows: what the lanes ``sm`` and ``ep`` carry, and the host launches; the longest path from what comes before the block
    to what waits for it (``CHAIN``), from the host's first launch to its last (``LOOP``, through the waits of the host
    for the device), and from the host's first launch to what waits for the block (``FIRST_OUT``). Sums of the first
    five over the blocks of a chunk are lengths of paths through it, so that none is longer than the chunk takes.

    Notes
    -----
    Data-parallel messages count as nothing: they depend on the pipeline. Operations that start before their block, and
    those that nothing waits for, are on no path.
    """
    found = np.zeros((6, *shape))
    none = np.full((2, *shape), -np.inf)
    host, tail, before_last = none.copy(), none.copy(), none  # what stands first in a block is beside nothing
    host[0], tail[1] = 0.0, 0.0  # row 0: from the host, row 1: from the chain
    reached: dict[str, Array] = {}
    lanes: dict[int, Array] = {}
    for priced in ops:
        op, seconds = priced.op, 0.0 if priced.op.category == "dp" else priced.seconds
        host = host + priced.launch
        found[HOST] += priced.launch
        if priced.lane == COMPUTE:
            found[SM] += seconds
        elif priced.lane == EP:
            found[EXCHANGE] += seconds
        if op.detached:
            continue
        if op.needs:
            ready = np.maximum.reduce([reached[name] for name in op.needs if name in reached] or [none])
        elif op.beside:
            ready = before_last
        elif op.prefetch:
            ready = none
        else:
            ready = tail
        end = np.maximum.reduce([ready, host, lanes.get(priced.lane, none)]) + seconds
        reached[op.name], lanes[priced.lane] = end, end
        before_last = ready
        if op.host_sync:
            host = np.maximum(host, ready) + sync  # for what the operation itself waits for
            found[HOST] += sync
        tail = np.maximum(tail, end) if op.prefetch else end
    found[CHAIN], found[LOOP], found[FIRST_OUT] = tail[1], host[0], tail[0]
    return found
