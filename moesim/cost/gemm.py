"""Time of dense matrix products."""

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.cost.tiles import SPLITS, Product, Tiling, best_tiling, tile_rate, traffic
from moesim.workload.ops import Gemm

TILES = ((128, 256), (256, 128), (128, 128), (128, 64), (64, 64))
"""Output tiles of the libraries, (rows, columns)."""
BLOCK = 16384
"""Shapes that are priced at a time: so many stay in cache. [-]"""


def gemm_time(work: Gemm, gpu: Gpu) -> Numeric:
    r"""Time of a GEMM, or of equal products that one kernel runs side by side. [s]

    .. math:: T = T_0 + \min_{t_m, t_n, s} (T_c^p + T_m^p)^{1/p}

    The library picks the tile and the split of k that finish first (:func:`moesim.cost.tiles.best_tiling`); the memory
    term is :func:`moesim.cost.tiles.traffic`.

    Parameters
    ----------
    work
        Shape; ``m``, ``n``, ``k`` per group. [-]
    gpu
        Rates and kernel constants.

    Notes
    -----
    The constants are a fit on published tables (``moesim calibrate gemm``). Heuristics of the libraries, which now and
    then pick a slower tile, are not modelled: they are most of the residual between 1 and 10 GFLOP.

    References
    ----------
    aiconfigurator-core-0.12
    """
    shape = np.broadcast_shapes(*(np.shape(value) for value in (work.m, work.n, work.k, work.groups)))
    if len(shape) != 1 or shape[0] < 2 * BLOCK:
        return gemm_parts(work, gpu).time
    sizes = [np.broadcast_to(value, shape) for value in (work.m, work.n, work.k, work.groups)]
    blocks = [slice(first, first + BLOCK) for first in range(0, shape[0], BLOCK)]
    parts = []
    for block in blocks:
        m, n, k, groups = (size[block] for size in sizes)
        parts.append(replace(work, m=m, n=n, k=k, groups=groups))
    return np.concatenate([gemm_parts(part, gpu).time for part in parts])


def gemm_parts(work: Gemm, gpu: Gpu) -> Product:
    """Compute, memory and fixed time of a GEMM. [s]"""
    constants = gpu.kernels
    heights = {tile_m for tile_m, _ in TILES}
    rows = {
        high: (work.groups * np.ceil(work.m / high), work.groups * np.maximum(work.m / high, 1)) for high in heights
    }
    tiling = Tiling(
        TILES,
        {
            (64, 64): constants.gemm_small_tile_penalty,
            (128, 64): constants.gemm_half_tile_penalty,
            (128, 128): constants.gemm_square_tile_penalty,
        },
        constants.gemm_norm,
        constants.gemm_wave_smoothing,
        constants.gemm_prologue,
        SPLITS,
        constants.gemm_idle_gain,
    )
    bandwidth = gpu.memory_bandwidth * constants.gemm_memory_efficiency
    partial = constants.gemm_reduction * 4 * work.groups * work.m * work.n / bandwidth
    compute, memory = best_tiling(
        work, gpu, tiling, rows, (traffic(work, gpu) / bandwidth, partial), tile_rate(work, gpu)
    )
    return Product(compute, memory, gemm_fixed(work, gpu), constants.gemm_norm)


def gemm_fixed(work: Gemm, gpu: Gpu) -> Numeric:
    """Time that a GEMM kernel takes however small it is. [s]"""
    constants = gpu.kernels
    narrow = work.operand_bytes < 2 and constants.gemm_narrow_fixed is not None
    return constants.gemm_narrow_fixed if narrow and constants.gemm_narrow_fixed is not None else constants.gemm_fixed
