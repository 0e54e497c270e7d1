"""Each token draws its experts uniformly; over many tokens all ranks get nearly the same rows."""

from moesim.workload.routing import Routing, routings

routings.add(
    "random",
    Routing(),
    summary="Each token draws its experts uniformly; over many tokens all ranks get nearly the same rows.",
    source="olmo-core-report",
)
