"""DeepEP's normal kernels on NVSHMEM's libfabric transport: a proxy drives the NIC, so that they run over AWS EFA."""

from moesim.cost.transports import transports
from moesim.cost.transports.deduplicated import Deduplicated

transports.add(
    "deepep-nvshmem",
    Deduplicated("deepep-nvshmem", host_syncs=1, networks=("efa",), max_ranks=64),
    summary="DeepEP V1 over NVSHMEM's libfabric transport: for EFA; combine aborts with 128 ranks.",
    source="aws-ep-benchmark",
)
