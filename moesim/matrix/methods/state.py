"""Where training state stays: replicas, shards, a sharded optimizer."""

from moesim.matrix.bottlenecks import FAMILIES
from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.situation import Formula

REPORT = "olmo-core-report"
WHOLE_WEIGHTS = {"overlap_param_gather": False, "reshard_after_forward": True, "optimizer_offload": 0.0}
LAYOUT_FILES = Knob("files of each rank's layout", both={"checkpoint": "layout"})
ZERO1 = {"dp_sharding": "zero1", "reduction": "all-reduce"}
GLOBAL_FILES = Knob("files by global keys")
WHOLE_FILES = Knob("whole tensors in a file", both={"checkpoint": "layout", "writer": "whole"})

methods.add(
    "ddp",
    Method(
        "DDP",
        "state",
        1,
        (
            Pair("FSDP", {"dp_sharding": "ddp"}, {"dp_sharding": "fsdp"}, WHOLE_WEIGHTS, families=("state", "update")),
            Pair(
                "one replica that does the same work",
                {"dp_sharding": "ddp"},
                {"dp_sharding": "ddp", "num_gpus": Formula("tp * cp * pp")},
                both=WHOLE_WEIGHTS | {"ep": 1, "etp": 1},
                families=tuple(family for family in FAMILIES if family not in ("state", "update")),
            ),
        ),
        classes=("dp",),
    ),
    summary="Whole training state on every replica, gradients reduced once a step.",
    source=REPORT,
)
methods.add(
    "fsdp",
    Method(
        "FSDP",
        "state",
        2,
        (Pair("DDP", {"dp_sharding": "fsdp"}, {"dp_sharding": "ddp"}, WHOLE_WEIGHTS),),
        (GLOBAL_FILES, LAYOUT_FILES),
        classes=("dp",),
    ),
    summary="Training state split over the replicas, weights gathered around each layer and micro-batch.",
    source=REPORT,
)
methods.add(
    "dist-opt",
    Method(
        "Dist Opt",
        "state",
        3,
        (
            Pair("DDP", ZERO1, {"dp_sharding": "ddp"}, WHOLE_WEIGHTS),
            Pair("FSDP", ZERO1, {"dp_sharding": "fsdp"}, WHOLE_WEIGHTS, families=("update",)),
        ),
        (Knob("weights in BF16"), Knob("weights in MXFP8 caches", both={"precision": "mxfp8", "fp8_params": True})),
        classes=("dp",),
    ),
    summary="Main weights and moments split over the replicas; gradients still all-reduced, weights gathered.",
    source=REPORT,
)
