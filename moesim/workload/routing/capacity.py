"""Every expert is filled or cut to capacity_factor times the mean of rows."""

from moesim.workload.routing import Routing, routings

routings.add(
    "capacity",
    Routing(),
    summary="Every expert is filled or cut to capacity_factor times the mean of rows.",
    source="megatron-lm",
)
