"""DeepEP V2: the same exchange on NCCL's device API with a handful of SMs across nodes."""

from moesim.cost.transports import transports
from moesim.cost.transports.deduplicated import Deduplicated

transports.add(
    "deepep-v2",
    Deduplicated("deepep-v2", host_syncs=1),
    summary="DeepEP V2: node-deduplicated exchange with 6 SMs across nodes.",
    source="deepep-v2",
)
