"""Link protocols: how a kind of network moves and spreads messages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moesim.spec.provenance import Number, Seconds
from moesim.spec.validation import NamedSpec


class ProtocolSpec(NamedSpec):
    """One link protocol.

    ``paths``: ``adaptive`` picks the path of each packet by load, ``spray`` uses all of them, ``static`` hashes a flow
    onto one path for good. The share of the line rate that data gets is told by the NIC.
    """

    hop_latency: Seconds = Field(description="A link with the switch behind it. [s]")
    end_latency: Seconds = Field(description="Both ends of a message, without the links. [s]")
    paths: Literal["adaptive", "spray", "static"]
    path_efficiency: Number | None = Field(None, description="Share of parallel links that is used. [-]")
    flows_per_link: Number | None = Field(None, description="Flows that are hashed onto each link, for static. [-]")
    incast_efficiency: Number = Field(description="Share of a NIC that many senders to one receiver reach. [-]")
    congestion: str = Field(description="How it keeps queues short.")
