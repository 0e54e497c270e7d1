"""Every rank gets the same rows."""

from moesim.workload.routing import Routing, routings

routings.add(
    "balanced",
    Routing(),
    summary="Every rank gets the same rows.",
    source="megatron-lm",
)
