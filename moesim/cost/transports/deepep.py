"""DeepEP normal (training) kernels, first generation: SM kernels drive NVLink and RDMA; the host waits for counts."""

from moesim.cost.transports import transports
from moesim.cost.transports.deduplicated import Deduplicated

transports.add(
    "deepep",
    Deduplicated("deepep", host_syncs=1),
    summary="DeepEP normal kernels: a token crosses to a node once, NVLink fan-out, SM driven.",
    source="deepep",
)
