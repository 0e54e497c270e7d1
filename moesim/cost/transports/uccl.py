"""UCCL-EP: the interface of DeepEP, with CPU threads that drive the NIC for the GPU, so that it runs over AWS EFA."""

from moesim.cost.transports import transports
from moesim.cost.transports.deduplicated import Deduplicated

transports.add(
    "uccl",
    Deduplicated("uccl", host_syncs=1, networks=("efa",), max_ranks=64),
    summary="UCCL-EP normal kernels: as DeepEP, with CPU proxies in front of the NIC; runs over EFA.",
    source="uccl-ep",
)
