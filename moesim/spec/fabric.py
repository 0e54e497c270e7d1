"""Networks between nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moesim.spec.provenance import Bytes, Constant, Number, Seconds
from moesim.spec.validation import NamedSpec


class FabricSpec(NamedSpec):
    """One kind of network and what messages on it cost."""

    kind: Literal["rail"]
    oversubscription: Number = Field(description="Down-link over up-link capacity of a leaf. [-]")
    latency: Seconds = Field(description="One hop of a ring between nodes. [s]")
    base_latency: Seconds = Field(description="Start of a collective. [s]")
    ring_efficiency: Number = Field(description="Share of the usable NIC bandwidth that a long ring reaches. [-]")
    p2p_latency: Seconds = Field(description="One message between two ranks. [s]")
    alltoall_base_latency: Seconds
    alltoall_latency_per_node: Seconds
    alltoall_efficiency: Number = Field(description="Share of the usable NIC bandwidth for large messages. [-]")
    alltoall_half_bytes: Bytes = Field(description="Bytes a rank sends at which half of that is reached. [B]")
    fits: dict[str, Constant] = Field(
        default_factory=dict, description="Corrections of collectives across nodes; see `moesim.cost.collectives.nccl`."
    )
