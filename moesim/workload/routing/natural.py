"""A learned router: the hottest rank gets rank_imbalance times the mean."""

from moesim.workload.routing import Routing, routings

routings.add(
    "natural",
    Routing(),
    summary="A learned router: the hottest rank gets rank_imbalance times the mean.",
    source="olmo-core-report",
)
