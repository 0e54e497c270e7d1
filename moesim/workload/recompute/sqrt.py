"""Keep the input of every ceil(sqrt(n))-th layer of a stage only; run such a segment again before its backward."""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "sqrt",
    RecomputePolicy(module="full", whole_layer=True, segments=True),
    summary="Keep one layer input in sqrt(n) of a stage; run the segment behind it again before its backward.",
    source="chen2016",
)
