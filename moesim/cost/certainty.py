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
EDGE = 1e-3
"""Powers of ten beyond the measured range that are rounding. [-]"""
GRADES = ("measured", "calibrated", "datasheet", "assumed")
"""Evidence grades from strong to weak."""
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
        wider = float(widening(decades_beyond(known.covered, counts_of(quantities)))) if known else 1.0
        return wider * low, wider * high, False
    low, _, high = known.quantiles[regime]
    decades = float(decades_beyond(known.covered, quantities))
    wider = max(known.stretch, float(widening(decades)))
    return wider * low, wider * high, decades == 0


def evidence(known: Residuals | None, regime: str, quantities: Mapping[str, Numeric]) -> tuple[str, tuple[str, ...]]:
    """Grade of one price and what lowers it: one below ``calibrated`` for each reason, two where nothing is calibrated."""
    if known is None:
        return GRADES[3], ("nobody measured this on this hardware or its like",)
    why = [] if regime in known.quantiles else [f"no measurement of its kind ({regime})"]
    if known.stretch > 1:
        why.append("measured on other hardware, carried over by rates")
    outside = [
        f"{name} {float(value):.6g} is outside of the {low:.6g} to {high:.6g} that were measured"
        for name, value in quantities.items()
        for low, high in (known.covered.get(name, (-np.inf, np.inf)),)
        if not low <= float(value) <= high
    ]
    return GRADES[min(1 + len(why) + bool(outside), 3)], (*why, *outside)


def decades_beyond(covered: Mapping[str, tuple[float, float]], quantities: Mapping[str, Numeric]) -> Numeric:
    """Powers of ten between a price and the nearest place that was measured, by the quantity that is furthest. [-]"""
    furthest: Numeric = np.float64(0.0)
    for name, value in quantities.items():
        if name in covered:
            low, high = (np.log10(max(end, 1e-300)) for end in covered[name])
            place = np.log10(np.maximum(value, 1e-300))
            furthest = np.maximum(furthest, np.maximum(low - place, place - high))
    return np.where(furthest > EDGE, furthest, 0.0)


def counts_of(quantities: Mapping[str, Numeric]) -> Mapping[str, Numeric]:
    """Quantities without the size: that which others were measured at says nothing of a kind that was not."""
    return {name: value for name, value in quantities.items() if name != "size_bytes"}


def widening(decades: Numeric) -> Numeric:
    """How much wider an interval is outside of what was measured: by 1.5, and by that again for every power of ten. [-]"""
    return np.where(np.asarray(decades) > 0, OUTSIDE ** np.maximum(decades, 1.0), 1.0)


def _certainty(known: Residuals | None, regimes: Regimes, quantities: Mapping[str, Numeric]) -> Certainty:
    if known is None:
        return Certainty(np.full(regimes.shape, UNCALIBRATED.sigma()), np.zeros(regimes.shape, bool))
    names = np.unique(regimes).tolist()
    sigmas = {name: known.sigma(name) if name in known.quantiles else UNCALIBRATED.sigma() for name in names}
    measured = np.isin(regimes, list(known.quantiles))
    decades = decades_beyond(known.covered, quantities)
    covered = measured & (decades == 0)
    sigma = np.vectorize(sigmas.__getitem__, otypes=[float])(regimes)
    unlike = widening(decades_beyond(known.covered, counts_of(quantities)))
    wider = np.where(measured, np.maximum(known.stretch, widening(decades)) / known.stretch, unlike)
    return Certainty(sigma * wider, covered)
