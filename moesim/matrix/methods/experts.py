"""Experts spread over ranks, and how their rows travel."""

from moesim.matrix.bottlenecks import FAMILIES
from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.methods.state import LAYOUT_FILES, WHOLE_FILES
from moesim.matrix.situation import Formula, Own

REPORT = "olmo-core-report"
SPREAD = Own("ep", Formula("min(domain, num_experts, num_gpus / (tp * cp * pp))"))
BLOCK = {"transport": "nccl-alltoall", "ep": SPREAD}
ROWS = {"transport": "nvshmem-rowwise", "ep": SPREAD}

methods.add(
    "ep",
    Method(
        "Gen. EP",
        "experts",
        4,
        (Pair("all experts on every rank", BLOCK, BLOCK | {"ep": 1}),),
        (
            Knob("split lists"),
            Knob("by copy engines", on={"copy_engine": True}),
            Knob("capacity filled up", on={"tails": "multiplied"}),
            LAYOUT_FILES,
            WHOLE_FILES,
        ),
        classes=("ep",),
    ),
    summary="Experts spread over the replicas of a stage, rows sent to them.",
    source=REPORT,
)
methods.add(
    "block-a2a",
    Method(
        "1D-A2A",
        "experts",
        5,
        (Pair("rows that are where they are needed", BLOCK, BLOCK | {"movement": "ideal"}),),
        (
            Knob("split lists"),
            Knob("by copy engines", on={"copy_engine": True}),
            Knob("capacity filled up", on={"tails": "multiplied"}),
        ),
        classes=("ep",),
    ),
    summary="Rows packed by destination, sent as blocks by NCCL with split lists of the host.",
    source=REPORT,
)
methods.add(
    "row-a2a",
    Method(
        "Row-A2A",
        "experts",
        6,
        (
            Pair(
                "block all-to-all",
                ROWS,
                BLOCK,
                families=tuple(one for one in FAMILIES if one not in ("traffic", "balance")),
            ),
            Pair("rows that are where they are needed", ROWS, BLOCK | {"movement": "ideal"}),
        ),
        (
            Knob("rows at work"),
            Knob("all rows of the buffer", on={"tails": "multiplied"}),
            Knob("rows brought back by recomputation", both={"recompute": ("full",)}),
        ),
        classes=("ep",),
    ),
    summary="Rows written one by one into symmetric memory of their experts' rank.",
    source=REPORT,
)
