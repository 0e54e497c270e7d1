"""Time of dense and grouped matrix products."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.workload.ops import Gemm

_SIZES = (64, 128, 256)
_CHOICES = np.array([(m, n, split) for m in _SIZES for n in _SIZES for split in (1, 2, 4, 8)], dtype=float).T
TILE_M, TILE_N, SPLIT = _CHOICES


def gemm_time(work: Gemm, gpu: Gpu, grouped: bool = False) -> Numeric:
    r"""Time of a dense or grouped GEMM. [s]

    .. math::

        T_c = \min_{t_m, t_n, s} \lceil g \lceil m/t_m \rceil \lceil n/t_n \rceil s / N_{SM} \rceil
              \frac{2 t_m t_n (k/s + k_0)}{R e / N_{SM}} + T_{split},
        \qquad e = \frac{e_{max}}{1 + a \cdot 256 / h(t_m, t_n)}

        T = T_0 + (T_c^p + T_m^p)^{1/p}

    The library picks the tile and the split of k that finish first; whole waves of tiles run on the SMs. Each tile
    pays a prologue worth ``k_0``; small tiles are less efficient (h is the harmonic mean of the tile sides). Products
    above ``gemm_power_onset`` FLOP slow by ``gemm_power_slope`` per decade (clocks under the power limit). The memory
    term reads the operands once and writes the result.

    Parameters
    ----------
    work
        Shape; ``m``, ``n``, ``k`` per group. [-]
    gpu
        Rates and kernel constants.
    grouped
        Whether one kernel runs products of several groups, which reaches a share of the dense rate.

    Notes
    -----
    The form and its constants are a fit on published tables (see the GPU spec); the unit of ``a`` (256) is this
    project's reading. A grouped GEMM sums its tiles over the groups and pays the fixed time once.

    References
    ----------
    aiconfigurator-core-0.12
    """
    constants = gpu.kernels
    rates = (gpu.num_sms, *gpu.rates.values(), gpu.memory_bandwidth, *vars(constants).values())
    dimensions = max(np.ndim(value) for value in (work.m, work.n, work.k, work.groups, *rates))
    tile_m, tile_n, split = (choice.reshape((-1,) + (1,) * dimensions) for choice in (TILE_M, TILE_N, SPLIT))
    tiles = work.groups * np.ceil(work.m / tile_m) * np.ceil(work.n / tile_n)
    waves = np.ceil(tiles * split / gpu.num_sms)
    harmonic = 2 / (1 / tile_m + 1 / tile_n)
    efficiency = constants.gemm_efficiency / (1 + constants.gemm_tile_penalty * 256 / harmonic)
    decades = np.maximum(np.log10(np.maximum(work.flop, 1.0) / constants.gemm_power_onset), 0)
    rate = gpu.rates[work.rate] * efficiency / (1 + constants.gemm_power_slope * decades)
    if grouped:
        rate = rate * grouped_share(work.m, gpu)
    bandwidth = gpu.memory_bandwidth * constants.gemm_memory_efficiency
    reduction = (split > 1) * 4 * (split + 1) * work.groups * work.m * work.n / bandwidth
    wave_time = 2 * tile_m * tile_n * (work.k / split + constants.gemm_prologue) * gpu.num_sms / rate
    compute: Numeric = np.min(waves * wave_time + reduction, axis=0)
    memory = work.hbm_bytes / bandwidth
    norm = constants.gemm_norm
    fixed = constants.gemm_fixed
    time: Numeric = fixed + (compute**norm + memory**norm) ** (1 / norm)
    return time


def grouped_share(rows: Numeric, gpu: Gpu) -> Numeric:
    """Rate of a grouped GEMM over that of a dense one of the same tiles. [-]

    Constant up to 128 and from 32,768 rows a group on, and between 256 and 4,096; linear in the logarithm between.
    """
    constants = gpu.kernels
    place = np.log2(np.maximum(rows, 1.0))
    middle = constants.grouped_gemm_efficiency
    few = np.clip(place - 7, 0, 1)  # 128 to 256 rows
    many = np.clip((place - 12) / 3, 0, 1)  # 4,096 to 32,768 rows
    small, large = constants.grouped_gemm_small_efficiency, constants.grouped_gemm_large_efficiency
    share: Numeric = small + (middle - small) * few + (large - middle) * many
    return share
