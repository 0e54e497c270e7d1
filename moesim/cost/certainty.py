"""How well the price of a collective or of a leg of the expert exchange is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Boolean, Numeric
from moesim.cost.machine import Group, Residuals
from moesim.cost.regimes import Regimes
from moesim.workload.ops import ExpertLeg

UNCALIBRATED = Residuals({"all": (-0.5, 0.0, 0.35)})
"""Residuals taken where nothing was calibrated. Assumed."""
OUTSIDE = 1.5
"""How much wider residuals are taken outside the range of the rows that they come from. Assumed."""
SMALL = 2.0**20
"""Size below which starting decides. [B]"""
NODE, NET = "collectives-node", "collectives-net"
"""Families of residuals: inside one NVLink domain, and across several."""
BLOCKWISE = "nccl-alltoall"


@dataclass(frozen=True)
class Certainty:
    """Standard error of the logarithm of a price [-], and whether measurements cover it."""

    sigma: Numeric
    covered: Boolean


def collective_regime(collective: str, size: Numeric, group: Group) -> Regimes:
    """Regime of a collective: inside a node or across nodes, and small or large."""
    across, small = np.asarray(group.nodes) > 1, np.asarray(size) < SMALL
    scale = np.where(small, "small", "large")
    return np.char.add(np.char.add(f"{collective}-", np.where(across, "net-", "node-")), scale)


def collective_certainty(collective: str, size: Numeric, group: Group, residuals: Mapping[str, Residuals]) -> Certainty:
    """How well the price of a collective is known; a group of one rank has none to know.

    Parameters
    ----------
    size, group
        As :func:`moesim.cost.collectives.collective_time` takes them. [B]
    residuals
        Of the machine, by family: ``collectives-node`` and ``collectives-net``.
    """
    regimes = collective_regime(collective, size, group)
    inside = _certainty(residuals.get(NODE), regimes, {"size_bytes": size, "ranks": group.size})
    across = _certainty(residuals.get(NET), regimes, {"size_bytes": size, "nodes": group.nodes})
    net, silent = np.asarray(group.nodes) > 1, (np.asarray(group.size) <= 1) | (np.asarray(size) <= 0)
    sigma = np.where(net, across.sigma, inside.sigma)
    covered = np.where(net, across.covered, inside.covered)
    return Certainty(np.where(silent, 0.0, sigma), np.where(silent, True, covered))


def leg_regime(direction: str, group: Group) -> Regimes:
    """Regime of a dispatch or combine: inside a node or across nodes."""
    return np.char.add(np.where(np.asarray(group.nodes) > 1, "inter-", "intra-"), direction)


def leg_certainty(transport: str, leg: ExpertLeg, group: Group, residuals: Mapping[str, Residuals]) -> Certainty:
    """How well the time of a dispatch or combine is known; a block all-to-all is known as well as that of NCCL."""
    if transport == BLOCKWISE:
        return collective_certainty("all-to-all", leg.busy_tokens * leg.top_k * leg.row_bytes, group, residuals)
    regimes = leg_regime(leg.direction, group)
    quantities = {"tokens": leg.busy_tokens, "nodes": group.nodes}
    found = _certainty(residuals.get(f"transport-{transport}"), regimes, quantities)
    silent = np.asarray(group.size) <= 1
    return Certainty(np.where(silent, 0.0, found.sigma), np.where(silent, True, found.covered))


def quantiles(known: Residuals | None, regime: str, quantities: Mapping[str, Numeric]) -> tuple[float, float, bool]:
    """5 % and 95 % quantile of log(predicted / measured) of one price, and whether measurements cover it."""
    if known is None or regime not in known.quantiles:
        low, _, high = UNCALIBRATED.quantiles["all"]
        return low, high, False
    low, _, high = known.quantiles[regime]
    covered = bool(_within(known, quantities))
    wider = known.stretch if covered else max(known.stretch, OUTSIDE)
    return wider * low, wider * high, covered


def evidence(known: Residuals | None, regime: str, quantities: Mapping[str, Numeric]) -> str:
    """Grade of one price: calibrated, carried over (derived), extrapolated, or from the datasheet."""
    if known is None or regime not in known.quantiles:
        return "datasheet"
    if not _within(known, quantities):
        return "extrapolated"
    return "calibrated" if known.stretch == 1 else "derived"


def _certainty(known: Residuals | None, regimes: Regimes, quantities: Mapping[str, Numeric]) -> Certainty:
    if known is None:
        return Certainty(np.full(regimes.shape, UNCALIBRATED.sigma()), np.zeros(regimes.shape, bool))
    names = np.unique(regimes).tolist()
    sigmas = {name: known.sigma(name) if name in known.quantiles else UNCALIBRATED.sigma() for name in names}
    measured = np.isin(regimes, list(known.quantiles))
    covered = measured & _within(known, quantities)
    sigma = np.vectorize(sigmas.__getitem__, otypes=[float])(regimes)
    wider = max(known.stretch, OUTSIDE) / known.stretch
    return Certainty(np.where(measured & ~covered, sigma * wider, sigma), covered)


def _within(known: Residuals, quantities: Mapping[str, Numeric]) -> Boolean:
    within: Boolean = np.bool_(True)
    for name, value in quantities.items():
        low, high = known.covered.get(name, (-np.inf, np.inf))
        within = within & (np.asarray(value) >= low) & (np.asarray(value) <= high)
    return within
