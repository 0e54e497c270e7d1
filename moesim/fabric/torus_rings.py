"""Rings along the dimensions of a torus: what they carry together."""

from __future__ import annotations

import math
from itertools import accumulate

from moesim.fabric.layout import Ints
from moesim.fabric.torus import Torus


def grid_rings(fabric: Torus, members: Ints) -> tuple[float, float]:
    r"""Share of the NICs of a group that rings dimension by dimension carry, and their steps; 0 where none fit. [-]

    .. math:: \beta = S \frac{n - 1}{n} \Big/ \sum_k \max_j \frac{S}{D \prod_{i < k} d_{j,i}}
              \frac{d_{j,k} - 1}{d_{j,k}} \frac{1}{\beta_{j,k}}

    A buffer is cut into D slices for D dimensions; slice j goes around dimension j first, then the next one with what is
    left of it, so that all dimensions work at the same time. A ring that closes uses both directions of its links,
    :math:`\beta_i = 2 b`, one that has to turn back uses each once; groups that interleave on a line share it, and so
    do the groups whose members stand on the same nodes.

    References
    ----------
    dally-towles-2004
    """
    fit = fabric.fit(members)
    if fit is None:
        return 0.0, 0.0
    inside, along = fit
    used = [
        (count, _rate(fabric, side, spacing, count))
        for side, (spacing, count) in zip(fabric.sides, along, strict=True)
        if count > 1
    ]
    if not used:
        return 0.0, 0.0
    slices = len(used)
    turns = [used[first:] + used[:first] for first in range(slices)]
    left = [list(accumulate((1 / count for count, _ in turn), lambda a, b: a * b, initial=1.0)) for turn in turns]
    seconds = sum(
        max(left[j][k] / slices * (turns[j][k][0] - 1) / turns[j][k][0] / turns[j][k][1] for j in range(slices))
        for k in range(slices)
    )
    nodes = math.prod(count for count, _ in used)
    sharing = fabric.gpus_per_node / inside
    bandwidth = (nodes - 1) / nodes / seconds / sharing
    return bandwidth / (inside * fabric.nic_bandwidth), float(sum(count - 1 for count, _ in used))


def _rate(fabric: Torus, side: int, spacing: int, count: int) -> float:
    """What one ring along a dimension carries. [B/s]"""
    closed = fabric.wrap and side > 2 and spacing * count == side
    return fabric.link_bandwidth * (2 if closed else 1) / spacing
