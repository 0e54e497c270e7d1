"""Time of grouped matrix products: one kernel over the experts of a rank."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.gemm import gemm_time
from moesim.cost.machine import Gpu
from moesim.cost.tiles import Product, Tiling, best_tiling, tile_rate, traffic
from moesim.workload.ops import Gemm

TILES = ((128, 256), (128, 128), (64, 128), (64, 64))
"""Output tiles of grouped kernels, (rows, columns)."""
HEIGHTS = (64, 128)
"""Rows of those tiles."""


@dataclass(frozen=True)
class Skewed:
    """Groups of known, unequal sizes: those with any row, and tiles along m over all groups by height of a tile. [-]"""

    active: Numeric
    tiles: Mapping[int, Numeric]


def skewed(work: Gemm) -> Skewed | None:
    """Tiles of the groups of a product; None where all groups have the same rows."""
    if work.spread is None:
        return None
    rows = work.m * work.spread
    tiles = {high: np.ceil(rows / high).sum(axis=0) for high in HEIGHTS}
    return Skewed(np.minimum(rows, 1).sum(axis=0), tiles)


def grouped_gemm_time(work: Gemm, gpu: Gpu, skewed: Skewed | None = None) -> Numeric:
    r"""Time of a grouped GEMM. [s]

    .. math:: T = T_0 + (T_c^p + T_m^p)^{1/p}, \qquad N = g' \lceil m / t_m \rceil \lceil n / t_n \rceil

    The tiles of all groups share the waves (:func:`moesim.cost.tiles.best_tiling`, without cuts of k). Groups without
    rows have no tiles and their weights stay where they are: g' of the g groups are at work, at most one a row.

    Parameters
    ----------
    work
        Shape; ``m`` rows per group on average. [-]
    gpu
        Rates and kernel constants.
    skewed
        Tiles of groups that differ in size; without it all have ``m`` rows.

    References
    ----------
    aiconfigurator-core-0.12, tables of fused MoE operations
    """
    return grouped_parts(work, gpu, skewed).time


def grouped_parts(work: Gemm, gpu: Gpu, skewed: Skewed | None = None) -> Product:
    """Compute, memory and fixed time of a grouped GEMM. [s]

    More rows never take less time, though kernels for few rows reach a lower rate: the first tile of every group counts.
    """
    found = _parts(work, gpu, skewed)
    if skewed is not None:
        return found
    first = _parts(replace(work, m=np.minimum(work.m, HEIGHTS[-1])), gpu, None)
    return replace(found, compute=np.maximum(found.compute, first.compute))


def _parts(work: Gemm, gpu: Gpu, skewed: Skewed | None) -> Product:
    constants = gpu.kernels
    if skewed is None:
        active = work.groups * np.minimum(work.m, 1)
        rows = {high: row_tiles(work.m, high, active) for high in HEIGHTS}
    else:
        active = skewed.active
        rows = {high: (skewed.tiles[high], np.maximum(work.groups * work.m / high, active)) for high in HEIGHTS}
    tiling = Tiling(
        TILES,
        {
            (64, 64): constants.grouped_gemm_small_tile_penalty,
            (64, 128): constants.grouped_gemm_half_tile_penalty,
        },
        constants.grouped_gemm_norm,
        constants.grouped_gemm_wave_smoothing,
        constants.grouped_gemm_prologue,
    )
    bandwidth = gpu.memory_bandwidth * constants.grouped_gemm_memory_efficiency
    rate = tile_rate(work, gpu) * grouped_share(work.m, gpu)
    streams = (traffic(work, gpu, active) / bandwidth, 0.0)
    compute, memory = best_tiling(work, gpu, tiling, rows, streams, rate)
    return Product(compute, memory, constants.grouped_gemm_fixed, constants.grouped_gemm_norm)


def row_tiles(rows: Numeric, high: int, active: Numeric) -> tuple[Numeric, Numeric]:
    """Tiles along m over all groups of equal size, whole and not rounded. [-]"""
    per_group = np.maximum(rows, 1) / high
    return active * np.ceil(per_group), active * np.maximum(per_group, 1)


def grouped_share(rows: Numeric, gpu: Gpu) -> Numeric:
    """Rate of a grouped GEMM over that of a dense one of the same tiles. [-]

    Constant up to 128 and from 32,768 rows a group on, and between 256 and 4,096; linear in the logarithm between. Rows
    count as whole tiles: what is gained by more rows is never more than what they cost.
    """
    constants = gpu.kernels
    place = np.log2(np.maximum(np.ceil(rows / HEIGHTS[-1]), 1.0) * HEIGHTS[-1])
    middle = constants.grouped_gemm_efficiency
    few = np.clip(place - 7, 0, 1)  # 128 to 256 rows
    many = np.clip((place - 12) / 3, 0, 1)  # 4,096 to 32,768 rows
    small, large = constants.grouped_gemm_small_efficiency, constants.grouped_gemm_large_efficiency
    share: Numeric = small + (middle - small) * few + (large - middle) * many
    return share


def looped_gemm_time(work: Gemm, gpu: Gpu) -> Numeric:
    """Time of the same products one after the other, one kernel each. [s]"""
    return work.groups * gemm_time(Gemm(work.m, work.n, work.k, 1, work.accumulate, work.rate, work.operand_bytes), gpu)
