"""One persistent kernel for a layer's experts: dispatch, products and combine tile by tile (MegaMoE)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.grouped import grouped_parts, row_tiles, skewed
from moesim.cost.machine import Group, Machine
from moesim.cost.transports import Transport, leg_time
from moesim.workload.ops import FusedExperts, Gemm

TILE = (128, 256)
"""Rows and columns that an SM computes at a time."""


def fused_experts_time(work: FusedExperts, group: Group, machine: Machine, transport: Transport) -> Numeric:
    r"""Time of the kernel. [s]

    .. math:: T = \max(T_{comm}, T_{gemm}) \frac{\lceil w \rceil}{w} + T_{fill}, \qquad w = \frac{N_{tiles}}{N_{SM}}

    Rows arrive while tiles of earlier ones are multiplied and their results leave, so the longer of the two streams
    counts; the last wave of tiles is not full. The fill is what the first tile waits for its rows and what the last one
    takes to return them. The activation stays on the SM.

    References
    ----------
    deepgemm, mega kernels; the first-order form is derived
    """
    legs = (work.dispatch, work.combine)
    comm = sum((leg_time(transport, leg, group, machine) for leg in legs), np.zeros(()))
    gemm: Numeric = machine.gpu.kernels.grouped_gemm_fixed
    tiles: Numeric = 0.0
    for product in work.products:
        parts = grouped_parts(product, machine.gpu, skewed(product))
        gemm = gemm + parts.time - parts.fixed
        tiles = tiles + _tiles(product)
    waves = tiles / machine.gpu.num_sms
    first = [replace(leg, tokens=TILE[0] / leg.top_k, load=1.0, counts=False) for leg in legs]
    fill = sum((leg_time(transport, leg, group, machine) for leg in first), np.zeros(()))
    return np.maximum(comm, gemm) * np.ceil(waves) / waves + fill


def _tiles(work: Gemm) -> Numeric:
    """Output tiles of a product over all experts. [-]"""
    uneven = skewed(work)
    rows = uneven.tiles[TILE[0]] if uneven else row_tiles(work.m, TILE[0], work.groups * np.minimum(work.m, 1))[0]
    return rows * np.ceil(work.n / TILE[1])
