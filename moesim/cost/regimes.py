"""Regimes of operations: what tells how well a price is known."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.workload.ops import AttentionCore, Gemm, Traffic

Regimes = NDArray[Any]
OTHER_KERNELS = "other kernels"
"""Word for norms, activations, permutations, updates and casts that look for their scale."""


def gemm_regime(work: Gemm) -> Regimes:
    """By FLOP: the launch and one wave decide, then the choice of the tile, then the clock."""
    kind = "16-bit" if work.operand_bytes >= 2 else work.rate
    return _named(work.flop, (1e9, 1e10, 1e11), "FLOP", kind)


def grouped_regime(work: Gemm) -> Regimes:
    """By rows per group: weight traffic decides, then half-empty tiles, then the tensor cores."""
    kind = "16-bit" if work.operand_bytes >= 2 else work.rate
    return _named(work.m, (64, 512), "rows", kind)


def attention_regime(work: AttentionCore, gpu: Gpu) -> Regimes:
    """By tiles of queries per SM; another shape of heads and the backward are other kernels."""
    tiles = work.batch * work.heads * np.ceil(work.queries / 128) / gpu.num_sms
    words = ("latent" if work.query_dim != work.value_dim else "", "backward" if work.backward else "")
    return _named(tiles, (1, 4), "tiles per SM", " ".join(filter(None, words)))


def traffic_regime(work: Traffic, gpu: Gpu) -> Regimes:
    """By size against the L2; kernels that do more than pass their bytes on are not like those that were measured."""
    return _named(work.hbm_bytes / gpu.l2_capacity, (0.1, 2), "of L2", "" if work.plain else OTHER_KERNELS)


FAMILIES = {"gemm": "gemm", "grouped_gemm": "grouped-gemm", "attention": "attention", "memory_bound": "memory"}
"""Family of calibrations for each breakdown category; ``optimizer`` is memory traffic as well."""


KERNELS = tuple(FAMILIES.values())
"""Families of kernels."""


def family(category: str) -> str | None:
    """Family of calibrations that an operation of a category belongs to."""
    return FAMILIES.get("memory_bound" if category == "optimizer" else category)


def regime(work: Gemm | AttentionCore | Traffic, category: str, gpu: Gpu) -> Regimes:
    """Regime of an operation."""
    match work:
        case Gemm():
            return grouped_regime(work) if category == "grouped_gemm" else gemm_regime(work)
        case AttentionCore():
            return attention_regime(work, gpu)
        case Traffic():
            return traffic_regime(work, gpu)


def quantities(work: Gemm | AttentionCore | Traffic) -> dict[str, float]:
    """Quantities of a kernel that calibrations say the range of."""
    match work:
        case Gemm():
            names = {"m": work.m, "n": work.n, "k": work.k, "groups": work.groups}
        case AttentionCore():
            names = {"batch": work.batch, "heads": work.heads, "length": work.queries, "query_dim": work.query_dim}
        case Traffic():
            names = {"bytes": work.hbm_bytes}
    return {name: float(value) for name, value in names.items()}


def _named(values: Numeric, edges: tuple[float, ...], unit: str, kind: str = "") -> Regimes:
    names = [f"< {edges[0]:g}", *(f"{low:g}-{high:g}" for low, high in itertools.pairwise(edges))]
    names = [" ".join(part for part in (name, unit, kind) if part) for name in (*names, f">= {edges[-1]:g}")]
    return np.asarray(names)[np.searchsorted(edges, np.asarray(values, dtype=float), side="right")]
