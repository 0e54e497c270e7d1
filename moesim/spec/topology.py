"""How networks are wired."""

from __future__ import annotations

from pydantic import Field, StrictBool

from moesim.spec.provenance import Bandwidth, Number, Seconds, SpecModel
from moesim.spec.validation import Count


class TopologySpec(SpecModel):
    """How a fabric is wired; each kind reads what it needs and the rest stays out.

    ``radix`` counts ports at the speed of a NIC. ``upper_oversubscription`` is for the levels above the leaf, from the
    spine up.
    """

    radix: Number | None = None
    levels: Count | None = None
    upper_oversubscription: tuple[Number, ...] = ()
    arity: Count | None = None
    dimensions: Count | None = Field(None, le=3)
    sides: tuple[Count, ...] = Field((), max_length=3)
    wrap: StrictBool | None = None
    rails_forward: StrictBool | None = None
    sites: Count | None = None
    wan_bandwidth: Bandwidth | None = Field(None, description="Of a site, each way. [B/s]")
    wan_latency: Seconds | None = Field(None, description="One way between two sites. [s]")
