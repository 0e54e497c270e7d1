"""Networks between nodes."""

from __future__ import annotations

from pydantic import Field, StrictBool

from moesim.base.errors import SpecError
from moesim.spec.provenance import Bandwidth, Bytes, Number, Seconds, SpecModel
from moesim.spec.validation import Count, NamedSpec


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


class FabricSpec(NamedSpec):
    """One kind of network and what messages on it cost."""

    kind: str = Field(description="One of the kinds of `moesim.fabric.builders`.")
    topology: TopologySpec = TopologySpec()
    oversubscription: Number = Field(description="Down-link over up-link capacity of a leaf. [-]")
    latency: Seconds = Field(description="One hop of a ring between nodes. [s]")
    base_latency: Seconds = Field(description="Start of a collective. [s]")
    ring_efficiency: Number = Field(description="Share of the usable NIC bandwidth that a long ring reaches. [-]")
    ring_node_latency: Seconds = Field(description="Per node, of a ring over all rails and NVLink. [s]")
    p2p_latency: Seconds = Field(description="One message between two ranks. [s]")
    alltoall_base_latency: Seconds
    alltoall_latency_per_node: Seconds
    alltoall_efficiency: Number = Field(description="Share of the usable NIC bandwidth for large messages. [-]")
    alltoall_half_bytes: Bytes = Field(description="Bytes a rank sends at which half of that is reached. [B]")


def split_name(name: str) -> tuple[str, float | None]:
    """Return the fabric and the oversubscription at its leaves that ``NAME:O`` asks for; None without ``:O``.

    Examples
    --------
    >>> split_name("fat-tree:2"), split_name("rail-ndr400")
    (('fat-tree', 2.0), ('rail-ndr400', None))
    """
    plain, colon, ratio = name.rpartition(":")
    if not colon:
        return name, None
    try:
        value = float(ratio)
    except ValueError:
        value = 0.0
    if not 0 < value < 1000:
        raise SpecError.single("", "", f"'{ratio}' in '{name}' is not an oversubscription", f"write {plain}:2")
    return plain, value


def oversubscribed(fabric: FabricSpec, ratio: float | None) -> FabricSpec:
    """Return a fabric whose leaves have another oversubscription, named after it."""
    if ratio is None:
        return fabric
    changed = Number(value=ratio, kind="assumed", note="asked for beside the name")
    return fabric.model_copy(update={"oversubscription": changed, "name": f"{fabric.name}:{ratio:g}"})
