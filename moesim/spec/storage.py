"""Places that checkpoints are written to."""

from __future__ import annotations

from pydantic import Field

from moesim.spec.provenance import Bandwidth, Number, Seconds
from moesim.spec.validation import NamedSpec


class StorageSpec(NamedSpec):
    """One tier of storage and what a node writes to it."""

    write_bandwidth: Bandwidth = Field(description="What one node writes. [B/s]")
    read_bandwidth: Bandwidth = Field(description="What one node reads. [B/s]")
    aggregate_bandwidth: Bandwidth | None = Field(
        default=None, description="What all nodes together write or read; none where each node has its own. [B/s]"
    )
    open_time: Seconds = Field(description="Opening files and committing metadata, once a save. [s]")
    survives_node_loss: bool = Field(description="Whether a checkpoint is still there when a node is not.")
    reached: Number = Field(description="Least share of the bandwidth that real saves have been seen to reach. [-]")
