"""A collective with PXN and without: what crosses which tier, and what that costs.

With PXN a message to another rail goes over NVLink first, to the GPU of its node whose NIC is on that rail; without it the
network above the leaves carries it from rail to rail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.fabric.reach import MembersReach
from moesim.fabric.tiers import members_bandwidth
from moesim.studies.collectives import CollectivePrice, Setting, price, setting
from moesim.studies.fabric_groups import sent

RAILS = ("rail", "rail-only")
"""Kinds of network with rails."""


@dataclass(frozen=True)
class Railed:
    """A collective with PXN on or off; ``tier_bytes``: what a rank puts on the links into each tier [B].

    ``refused``: why there is no such collective.
    """

    pxn: bool
    price: CollectivePrice | None
    tier_bytes: dict[str, float]
    refused: str = ""

    @property
    def crosses_rails(self) -> bool:
        """Whether anything goes from rail to rail above the leaves; with PXN what is there stays on its rail."""
        return not self.pxn and any(value for tier, value in self.tier_bytes.items() if tier not in ("nvlink", "leaf"))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, units in the keys."""
        told: dict[str, Any] = {"pxn": self.pxn}
        if self.price is None:
            return told | {"refused": self.refused}
        return told | self.price.to_dict() | {"tier_bytes": self.tier_bytes, "crosses_rails": self.crosses_rails}


def railed(
    collective: str, size: float, cluster: str, fabric: str | None, pxn: Sequence[bool], own: Sequence[Path] = ()
) -> tuple[Railed, ...]:
    """Price a collective on a network with rails, with PXN and without.

    Parameters
    ----------
    collective
        Its full name, such as ``all-to-all``.
    size
        As nccl-tests count it. [B]
    cluster, fabric
        ``NODE:count``, and the network, else the usual one of the node.
    pxn
        The ways to price.
    own
        Calibrations in place of the shipped ones.

    Raises
    ------
    SpecError
        Where the network has no rails.
    """
    return tuple(_one(collective, size, setting(cluster, fabric=fabric, pxn=on, own=own), on) for on in pxn)


def _one(collective: str, size: float, where: Setting, on: bool) -> Railed:
    network = _network(where)
    if not on and network.kind == "rail-only":
        why = "nothing joins the rails above their leaves: without PXN a GPU reaches its own rail alone"
        return Railed(on, None, {}, why)
    reach = where.group.reach
    assert isinstance(reach, MembersReach)  # a network has been found in it
    pattern, moved = sent(collective, size, float(where.group.size))
    tiers: dict[str, float] = {}
    for load in members_bandwidth(network.reduced, reach.members, pattern).loads.values():
        if load.total:
            share = load.total / load.crossings / reach.members.size
            tiers[load.tier] = tiers.get(load.tier, 0.0) + share * moved
    return Railed(on, price(collective, size, where), tiers)


def _network(where: Setting) -> Any:
    network = getattr(where.group.reach, "network", None)
    if network is None or network.kind not in RAILS:
        kind = "no network" if network is None else f"a network of the kind {network.kind}"
        raise SpecError.single(
            "--pxn", "", f"{where.fabric} is {kind}, without rails", "--fabric rail-ndr400 or rail-only"
        )
    return network
