"""How far off prices may be: columns in which the operations of one family cost a standard error more.

Prices of one family come from the same fit, so they are off together: one column raises all of them. Families are off
independently of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Group, Machine, Residuals
from moesim.cost.regimes import family, message_family, message_regime, quantities, regime
from moesim.workload.ops import AttentionCore, ExpertLeg, Gemm, Message, Traffic, Work

EXTRAPOLATED_SPREAD = 1.5
"""How much wider residuals are taken outside of what was measured. Assumed: as much as on another GPU. [-]"""


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
class PriceErrors:
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
        which, kind, values = self._placed(work, category, group)
        if which is None:
            return 1.0
        known = self.machine.residuals.get(which)
        if known is None:
            self.uncalibrated[which] = None
            return 1.0
        found = list(beyond(known, which, name, kind, values))
        self.outside.update(dict.fromkeys(found))
        factor = np.ones(self.count)
        everywhere, only_outside = self.columns[which]
        sigma = known.sigma(kind) * (EXTRAPOLATED_SPREAD if found else 1.0)
        factor[everywhere] = np.exp(sigma)
        if found:
            factor[only_outside] = np.exp(sigma)
        return factor

    def _placed(self, work: Work, category: str, group: Group | None) -> tuple[str | None, str, Mapping[str, float]]:
        """Family, regime and covered quantities of an operation; no family where there is nothing to do."""
        idle = group is not None and float(group.size) <= 1
        if idle or (isinstance(work, Traffic) and not float(work.hbm_bytes)):
            return None, "", {}
        match work:
            case Gemm() | AttentionCore() | Traffic():
                kind = str(regime(work, category, self.machine.gpu))
                return family(category), kind, quantities(work)
            case ExpertLeg() if group is not None:
                across = "inter" if float(group.nodes) > 1 else "intra"
                values = {"tokens": float(work.busy_tokens), "nodes": float(group.nodes)}
                return f"transport-{self.transport}", f"{across}-{work.direction}", values
            case Message() if group is not None and float(work.size):
                values = {"size_bytes": float(work.size), "ranks": float(group.size), "nodes": float(group.nodes)}
                return message_family(group), message_regime(work, group), values
            case _:
                return None, "", {}


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
    if len(known.quantiles) > 1 and kind not in known.quantiles:
        found.append(Outside(which, name, "regime", kind))
    return found
