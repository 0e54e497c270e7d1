"""Matrix products as waves of tiles over the SMs: what dense and grouped GEMMs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.workload.ops import Gemm

Tile = tuple[int, int]
"""Rows and columns of the output that one SM computes at a time."""
SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts k is cut where there are too few tiles."""
MMA_DEPTH = 64
"""Values of k that the tensor cores take in at least. [-]"""
L2_SHARPNESS = 8
"""Exponent of the transition between what the L2 holds and what it does not. [-]"""


@dataclass(frozen=True)
class Tiling:
    """What a kernel may choose from, and what its choices cost.

    ``penalties``: time of a tile over its share of the output; ``norm``: how well compute and memory overlap;
    ``smoothing``: part of a wave that need not be whole; ``prologue``: start and end of a tile, in units of k;
    ``idle_gain``: share of a tile's time that is saved where no other SM is at work. [-]
    """

    tiles: tuple[Tile, ...]
    penalties: Mapping[Tile, Numeric]
    norm: Numeric
    smoothing: Numeric
    prologue: Numeric
    splits: tuple[int, ...] = (1,)
    idle_gain: Numeric = 0.0


@dataclass(frozen=True)
class Product:
    """Parts of the price of a matrix product. [s, FLOP/s, -]"""

    compute: Numeric
    memory: Numeric
    fixed: Numeric
    norm: Numeric

    @property
    def time(self) -> Numeric:
        """Both streams overlap, the better the further they are apart: a p-norm. [s]"""
        return self.fixed + (self.compute**self.norm + self.memory**self.norm) ** (1 / self.norm)


def tile_rate(work: Gemm, gpu: Gpu) -> Numeric:
    r"""Sustained rate of the tensor cores, slowed where the power limit lowers the clock. [FLOP/s]

    .. math:: R e / \left(1 + s \max\left(\log_{10} \frac{2 g m n k}{F_0 r} + \gamma \log_{10} \frac{k}{4096},
              0\right)\right)

    ``r`` is the rate over that of BF16: a faster format draws the power of as much more FLOP.
    """
    constants = gpu.kernels
    flop = np.maximum(work.flop, 1.0)
    onset = constants.gemm_power_onset * gpu.rates[work.rate] / gpu.rates["bf16"]
    depth = constants.gemm_power_depth * np.log10(np.maximum(work.k, 1.0) / 4096)
    decades = np.maximum(np.log10(flop / onset) + depth, 0)
    return gpu.rates[work.rate] * constants.gemm_efficiency / (1 + constants.gemm_power_slope * decades)


def prologue(work: Gemm, gpu: Gpu, depth: Numeric) -> Numeric:
    """Start and end of a tile in units of k; a faster format does not shorten it. [-]"""
    longer = gpu.kernels.gemm_narrow_prologue if work.operand_bytes < 2 else 1.0
    return depth * longer * gpu.rates[work.rate] / gpu.rates["bf16"]


def traffic(work: Gemm, gpu: Gpu, weight_groups: Numeric | None = None) -> Numeric:
    r"""Bytes of a product that count: weights from HBM, activations as far as the L2 does not hold them. [B]

    .. math:: B + A (1 - h_A + h_A / u_A) + C (1 - h_C + h_C / u_C),
              \qquad h = 1 / (1 + (\text{bytes} / c L)^8)

    The right operand is a weight and cold; the left one was just written, the result is about to be read, and what of
    them fits a share c of the L2 (L bytes) moves u times faster.

    Notes
    -----
    The tables show it: with 16-40 MB of left operand a product of 64 columns reads 4-5 TB/s of an H100, the mirrored
    one with 64 rows and as large a right operand 2.6.
    """
    constants = gpu.kernels
    left = work.groups * work.operand_bytes * work.m * work.k
    groups = work.groups if weight_groups is None else weight_groups
    right = groups * work.operand_bytes * work.k * work.n
    result = work.groups * (8 if work.accumulate else 2) * work.m * work.n
    held = resident(left, gpu, constants.gemm_input_l2)
    kept = resident(result, gpu, constants.gemm_output_l2)
    moved = right + left * (1 - held + held / constants.gemm_input_speedup)
    return moved + result * (1 - kept + kept / constants.gemm_output_speedup)


def resident(num_bytes: Numeric, gpu: Gpu, share: Numeric) -> Numeric:
    """How much of a buffer a share of the L2 holds: 1 well below, 0 well above. [-]"""
    return 1 / (1 + (num_bytes / (gpu.l2_capacity * share)) ** L2_SHARPNESS)


def best_tiling(
    work: Gemm,
    gpu: Gpu,
    tiling: Tiling,
    row_tiles: Mapping[int, tuple[Numeric, Numeric]],
    streams: tuple[Numeric, Numeric],
    rate: Numeric,
) -> tuple[Numeric, Numeric]:
    r"""Compute and memory time of the tiling that finishes first. [s]

    .. math::

        T_c = w(u) (1 - \iota (1 - \min(u, 1))) \frac{2 t_m t_n (\max(k/s, 64) + k_0)}{R e / N_{SM}} + [s > 1] T_s, \qquad
        w = (1 - \sigma) \lceil u \rceil + \sigma \max(u^*, 1), \qquad u = N s / N_{SM}

    ``N`` whole tiles, ``u*`` as u without rounding. Persistent kernels balance the last wave in part: ``sigma``. While
    SMs idle the others run faster by ``iota``: the clock is higher, and L2 and HBM serve fewer of them.
    Where there are fewer tiles than SMs the library may cut k into s parts, which costs ``T_s`` and partial sums.

    Parameters
    ----------
    work, gpu
        The product, with ``m`` per group.
    tiling
        What the kernel chooses from.
    row_tiles
        Tiles along m summed over the groups, rounded up and not, for each height of a tile. [-]
    streams
        Time of the bytes, and of one set of partial sums. [s]
    rate
        Sustained rate of all SMs. [FLOP/s]
    """
    memory, partial = streams
    each = rate / gpu.num_sms
    start = prologue(work, gpu, tiling.prologue)
    best: Numeric = np.inf
    compute: Numeric = np.inf
    stream: Numeric = np.inf
    shapes = []
    for tile in tiling.tiles:
        rows, ideal = row_tiles[tile[0]]
        units = rows * np.ceil(work.n / tile[1]) / gpu.num_sms
        smoothed = ideal * np.maximum(work.n / tile[1], 1) / gpu.num_sms
        shapes.append((units, smoothed, 2 * tile[0] * tile[1] * tiling.penalties.get(tile, 1.0) / each))
    fewest = np.min([np.min(units) for units, _, _ in shapes])
    for split in tiling.splits:
        if split > 1 and fewest * split > 1 + 1e-9:
            break  # no tiling leaves an SM without work
        fastest: Numeric = np.inf
        for units, smoothed, tile_time in shapes:
            busy = units * split
            waves = (1 - tiling.smoothing) * np.ceil(busy) + tiling.smoothing * np.maximum(smoothed * split, 1)
            waves = waves * (tile_time * (1 - tiling.idle_gain) + tile_time * tiling.idle_gain * np.minimum(busy, 1))
            if split > 1:
                waves = np.where(busy <= 1 + 1e-9, waves, np.inf)
            fastest = np.minimum(fastest, waves)
        fastest = fastest * (np.maximum(work.k / split, MMA_DEPTH) + start)
        moved = memory
        if split > 1:
            fastest = fastest + gpu.kernels.gemm_split_fixed
            moved = memory + (split + 1) * partial
        total = fastest**tiling.norm + moved**tiling.norm
        better = total < best
        best = np.where(better, total, best)
        compute = np.where(better, fastest, compute)
        stream = np.where(better, moved, stream)
    return compute, stream
