"""Hybrid-EP: TMA copies inside an NVLink domain (72 GPUs on NVL72), one RDMA copy per domain; no host sync."""

from moesim.cost.transports import transports
from moesim.cost.transports.deduplicated import Deduplicated

transports.add(
    "hybridep",
    Deduplicated("hybridep", host_syncs=0),
    summary="Hybrid-EP: TMA inside an NVLink domain, one copy of a token per domain across, no host sync.",
    source="deepep-hybrid",
)
