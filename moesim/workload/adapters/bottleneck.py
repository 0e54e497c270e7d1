"""Bottleneck adapters: behind each layer a projection down to width r, an activation and one up again, 2 r d.

They stand in the way of every token, so they cost latency where the pair of LoRA can be merged or run beside.
"""

from moesim.workload.adapters import Adapter, adapters

adapters.add(
    "bottleneck",
    Adapter(beside=False),
    summary="Adapter layers, bottleneck:R: a bottleneck of width R behind each frozen layer.",
    source="houlsby2019",
)
