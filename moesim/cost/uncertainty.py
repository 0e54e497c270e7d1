"""How far off prices may be: columns in which the operations of one family cost a standard error more.

Prices of one family come from the same fit, so they are off together: one column raises all of them. Families are off
independently of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.certainty import (
    BLOCKWISE,
    NET,
    NODE,
    collective_certainty,
    collective_regime,
    leg_certainty,
)
from moesim.cost.kernel_certainty import is_measured, kernel_sigma
from moesim.cost.machine import Group, Machine, Residuals
from moesim.cost.once import Once
from moesim.cost.regimes import family, quantities, regime
from moesim.workload.ops import AttentionCore, ExpertLeg, FusedExperts, Gemm, Message, Traffic, Work


@dataclass(frozen=True)
class Outside:
    """A price outside of what its calibration covers.

    ``value`` of ``quantity`` lies outside ``low`` to ``high``; ``quantity`` is ``regime`` where no row of its kind was
    measured, and the bounds are then missing.
    """

    family: str
    operation: str
    quantity: str
    value: float | str
    low: float | None = None
    high: float | None = None


@dataclass
class PriceErrors(Once):
    """Columns of a batch that raise the prices of a family.

    ``columns``: for each family with residuals, the column where all of its prices are raised, and the one where only
    those outside of the covered range are. ``count``: columns in all. ``outside``: what was met there, and
    ``uncalibrated``: families met that have no residuals; both are filled while prices are made.
    """

    machine: Machine
    transport: str
    columns: Mapping[str, tuple[int, int]]
    count: int
    outside: dict[Outside, None] = field(default_factory=dict)
    uncalibrated: dict[str, None] = field(default_factory=dict)

    def raised(self, work: Work, category: str, name: str, group: Group | None = None) -> Numeric:
        """Factor on the price of an operation, one entry a column. [-]

        Parameters
        ----------
        work, category, name
            The operation.
        group
            Ranks that a message or an expert leg goes between.
        """
        ranks = None if group is None else (float(group.size), float(group.nodes))
        factor, found = self.once((category, ranks), work, lambda: self._factor(work, category, group))
        for one in found:
            self.outside[replace(one, operation=name)] = None
        return factor

    def _factor(self, work: Work, category: str, group: Group | None) -> tuple[Numeric, list[Outside]]:
        """Factor on the price of an operation, and what of it is outside, its name left out."""
        which, kind, values = placed(work, category, self.machine, self.transport, group)
        if which is None:
            return 1.0, []
        known = self.machine.residuals.get(which)
        if known is None:
            self.uncalibrated[which] = None
            return 1.0, []
        sigma = self._sigma(known, kind, work, group, values)
        found = beyond(known, which, "", kind, values)
        return self._columns(which, sigma, bool(found)), found

    def _columns(self, which: str, sigma: float, outside: bool) -> Numeric:
        factor = np.ones(self.count)
        everywhere, only_outside = self.columns[which]
        factor[everywhere] = np.exp(sigma)
        if outside:
            factor[only_outside] = np.exp(sigma)
        return factor

    def _sigma(
        self, known: Residuals, kind: str, work: Work, group: Group | None, values: Mapping[str, float]
    ) -> float:
        residuals = self.machine.residuals
        if isinstance(work, Message) and group is not None:
            return float(collective_certainty(work.collective, work.size, group, residuals).sigma)
        if isinstance(work, ExpertLeg) and group is not None:
            return float(leg_certainty(self.transport, work, group, residuals).sigma)
        return kernel_sigma(known, kind, values)


@dataclass
class SampledErrors(PriceErrors):
    """Columns in which each family of prices is off by a draw of its own.

    ``draws``: for each family one number for each column, in standard errors. [-]
    """

    draws: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def _columns(self, which: str, sigma: float, outside: bool) -> Numeric:
        del outside  # one draw for all of them
        return np.exp(sigma * self.draws[which]) if which in self.draws else 1.0


def placed(
    work: Work, category: str, machine: Machine, transport: str, group: Group | None
) -> tuple[str | None, str, Mapping[str, float]]:
    """Family, regime and covered quantities of an operation; no family where there is nothing to do."""
    if isinstance(work, Gemm | AttentionCore | Traffic):
        if isinstance(work, Traffic) and not float(work.hbm_bytes):
            return None, "", {}
        if isinstance(work, AttentionCore):  # what is not known of the backward stands with its own constants
            work = replace(work, backward=False)
        return family(category), str(regime(work, category, machine.gpu)), quantities(work)
    if isinstance(work, FusedExperts):
        return "fused-experts", "all", {}
    if group is None or float(group.size) <= 1:
        return None, "", {}
    across = float(group.nodes) > 1
    if isinstance(work, ExpertLeg) and transport != BLOCKWISE:
        values = {"tokens": float(work.busy_tokens), "nodes": float(group.nodes)}
        return f"transport-{transport}", f"{'inter' if across else 'intra'}-{work.direction}", values
    if isinstance(work, ExpertLeg):
        name, size = "all-to-all", float(work.busy_tokens * work.top_k * work.row_bytes)
    else:
        name, size = work.collective, float(work.size)
    if not size:
        return None, "", {}
    count = {"nodes": float(group.nodes)} if across else {"ranks": float(group.size)}
    return NET if across else NODE, str(collective_regime(name, size, group)), {"size_bytes": size} | count


def families(machine: Machine, transport: str) -> tuple[str, ...]:
    """Families of prices whose residuals are known and that a step can use: of the transports only the one in use."""
    return tuple(
        name for name in machine.residuals if not name.startswith("transport-") or name == f"transport-{transport}"
    )


def beyond(known: Residuals, which: str, name: str, kind: str, values: Mapping[str, float]) -> list[Outside]:
    """What of an operation lies outside of what the residuals were measured on."""
    found = []
    for quantity, value in values.items():
        low, high = known.covered.get(quantity, (-np.inf, np.inf))
        if not low <= value <= high:
            found.append(Outside(which, name, quantity, value, low, high))
    if not is_measured(known, kind):
        found.append(Outside(which, name, "regime", kind))
    return found
