"""How the host and the streams run a step, where its ranks lie, how it is saved."""

from moesim.matrix.ensemble import SKEW
from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.situation import BySkew, Formula, Own

REPORT = "olmo-core-report"
LISTS = {"transport": "nccl-alltoall"}
BOUNDED = {"sync_free": True, "capacity_factor": BySkew(1.25, 4.0)}

methods.add(
    "sync-free",
    Method(
        "Sync-Free",
        "execution",
        14,
        (Pair("split lists on the host", {"sync_free": True}, {"sync_free": False}, LISTS),),
        (
            Knob("room for the hottest rank", on=BOUNDED),
            Knob(
                "less room than the hottest rank asks for, rows dropped",
                both={"routing": SKEW, "rank_imbalance": 1.0, "capacity_factor": 1.0},
            ),
        ),
    ),
    summary="Counts and offsets stay on the GPU, buffers have a capacity.",
    source=REPORT,
)
methods.add(
    "cuda-graph",
    Method(
        "CUDA Graph",
        "execution",
        15,
        (
            Pair("launches without host waits", {"cuda_graph": "full"}, {"cuda_graph": "none"}, LISTS | BOUNDED),
            Pair("launches with split lists", BOUNDED | {"cuda_graph": "full"}, {"cuda_graph": "none"}, LISTS),
        ),
        (Knob("a whole micro-batch"), Knob("parts of a layer", on={"cuda_graph": "attn+moe-router+moe"})),
    ),
    summary="Kernels captured once and replayed with one launch.",
    source=REPORT,
)
methods.add(
    "overlap",
    Method(
        "Overlap",
        "execution",
        16,
        (
            Pair(
                "one phase after the other",
                {},
                {},
                {
                    "transport": "nvshmem-rowwise",
                    "overlap_shared_expert": False,
                    "overlap_p2p": False,
                    "ep": Formula("min(ep, domain)"),
                },
            ),
        ),
        (
            Knob("two half micro-batches", on={"two_batch_overlap": True}),
            Knob("waves of rows", on={"expert_waves": 2}),
            Knob(
                "sends beside the next chunk",
                on={"overlap_p2p": True},
                both={"pp": Own("pp", 4), "schedule": "interleaved-1f1b", "vpp": 2},
            ),
        ),
        classes=("ep", "pp"),
    ),
    summary="Exchange of one part beside the computation of another.",
    source=REPORT,
)
methods.add(
    "hw-map",
    Method(
        "HW Map",
        "placement",
        17,
        (
            Pair(
                "ranks in arbitrary order",
                {"rank_order": "mapped"},
                {"rank_order": "arbitrary"},
                {"pp": Own("pp", 4), "schedule": Own("schedule", "1f1b"), "ep": Formula("min(ep, domain)")},
            ),
        ),
        classes=("ep", "tp", "cp", "pp", "dp"),
        needs="num_gpus > domain",
    ),
    summary="Rank order that puts the busiest groups inside NVLink domains.",
    source=REPORT,
)
methods.add(
    "topology-agnostic-checkpoint",
    Method(
        "Topo-Agst Ckpt",
        "placement",
        18,
        (Pair("files of each rank's layout", {"checkpoint": "global"}, {"checkpoint": "layout"}),),
        (Knob("restart on the same layout"), Knob("restart on another layout", both={"restart": "other"})),
    ),
    summary="Tensors saved by global keys and offsets, loaded by any layout.",
    source=REPORT,
)
