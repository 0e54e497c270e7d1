"""What is kept from forward to backward: repeated, or moved to the host."""

from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.methods.execution import BOUNDED, LISTS

REPORT = "olmo-core-report"
BLOCKS = LISTS | BOUNDED
"""Packed rows whose counts stay on the GPU, as those of what they are set beside."""

methods.add(
    "recompute",
    Method(
        "Recomp",
        "memory",
        11,
        (Pair("everything kept", {"recompute": ("full",)}, {"recompute": ()}),),
        (
            Knob("whole layers", both=BLOCKS),
            Knob("whole layers, rows in symmetric memory", both={"transport": "nvshmem-rowwise"}),
            Knob("attention alone", on={"recompute": ("attn",)}, both=BLOCKS),
        ),
    ),
    summary="Inputs of a region kept, its forward run again before the backward.",
    source=REPORT,
)
methods.add(
    "cpu-offload",
    Method(
        "CPU Offload",
        "memory",
        19,
        (Pair("everything kept on the GPU", {"activation_offload": 0.5}, {"activation_offload": 0.0}),),
        classes=("pcie",),
    ),
    summary="Activations copied to the host after a forward, and back before the backward.",
    source=REPORT,
)
