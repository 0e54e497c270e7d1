"""The second set: methods around those of the report's figure."""

from moesim.matrix.ensemble import SKEW
from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.methods.state import GLOBAL_FILES, LAYOUT_FILES, WHOLE_WEIGHTS
from moesim.matrix.situation import BySkew, Formula, Own

WIDTH = Own("tp", Formula("min(4, num_heads)"))
TENSOR = {"tp": WIDTH, "sequence_parallel": True}
DDP = {"dp_sharding": "ddp"}
BLOCK = {"transport": "nccl-alltoall"}
FILES = (GLOBAL_FILES, LAYOUT_FILES)
SHARDED = (
    ("zero-1", "ZeRO-1", {"dp_sharding": "zero1"}, "zero2020", "Optimizer state split over the replicas."),
    ("zero-2", "ZeRO-2", {"dp_sharding": "zero2"}, "zero2020", "Optimizer state and gradients split."),
    ("zero-3", "ZeRO-3", {"dp_sharding": "fsdp"}, "zero2020", "All training state split over the replicas."),
)

for place, (name, title, on, source, summary) in enumerate(SHARDED, start=102):
    methods.add(
        name,
        Method(title, "state", place, (Pair("DDP", on, DDP, WHOLE_WEIGHTS),), FILES, ("dp",), second=True),
        summary=summary,
        source=source,
    )
methods.add(
    "tp",
    Method(
        "TP (Megatron)",
        "sequence and depth",
        101,
        (Pair("whole matrices", TENSOR, {"tp": 1, "sequence_parallel": False}),),
        (Knob("inside a domain"), *FILES[1:]),
        ("tp",),
        second=True,
    ),
    summary="Matrices split by column, then by row, over ranks of a node, with activations split between them.",
    source="megatron-lm",
)
methods.add(
    "bucketing",
    Method(
        "DDP bucketing",
        "state",
        106,
        (
            Pair(
                "one reduction after the last backward",
                {"grad_bucket_bytes": 25.0 * 2**20, "overlap_grad_reduce": True},
                {"grad_bucket_bytes": None, "overlap_grad_reduce": False},
                WHOLE_WEIGHTS | DDP,
            ),
        ),
        classes=("dp",),
        second=True,
    ),
    summary="Gradients reduced bucket by bucket beside the backward.",
    source="pytorch-ddp-hooks",
)
methods.add(
    "grad-compression",
    Method(
        "Gradient compression",
        "state",
        107,
        (
            Pair(
                "FP32 gradients on the wire",
                {"grad_compression": "bf16"},
                {"grad_compression": "none"},
                WHOLE_WEIGHTS | DDP,
            ),
        ),
        (Knob("BF16"), Knob("factors of rank 4", on={"grad_compression": "powersgd:4"})),
        ("dp",),
        second=True,
    ),
    summary="Gradients cast, or as factors of a low rank, for their reduction.",
    source="vogels2019-powersgd",
)
methods.add(
    "hierarchical-a2a",
    Method(
        "Hierarchical all-to-all",
        "experts",
        108,
        (Pair("one all-to-all over all ranks", {"transport": "nccl-hierarchical"}, BLOCK),),
        classes=("ep",),
        second=True,
    ),
    summary="All-to-all inside domains, then between them.",
    source="tutel-2023",
)
methods.add(
    "fused-kernels",
    Method(
        "Fused MoE kernels",
        "kernels",
        109,
        (
            Pair("a kernel for each step", {"fusions": ("permute", "router")}, {"fusions": ()}, BLOCK),
            Pair(
                "a kernel for each step, in MXFP8",
                {"fusions": ("permute", "router", "activation-quantize")},
                {"fusions": ()},
                BLOCK | {"precision": "mxfp8", "fp8_params": True},
            ),
        ),
        second=True,
    ),
    summary="Router, layout passes, and activation with cast in one kernel each.",
    source="megatron-lm",
)
methods.add(
    "sqrt-checkpointing",
    Method(
        "sqrt(L) checkpointing",
        "memory",
        110,
        (Pair("everything kept", {"recompute": ("sqrt",)}, {"recompute": ()}, BLOCK),),
        second=True,
    ),
    summary="One input kept for each of sqrt(L) segments.",
    source="chen2016",
)
methods.add(
    "capacity-drop",
    Method(
        "Capacity factor + drop",
        "experts",
        111,
        (
            Pair(
                "all rows",
                {"sync_free": True, "capacity_factor": 1.25, "capacity_per": BySkew("rank", "expert")},
                {"sync_free": False, "capacity_factor": None, "capacity_per": "rank"},
                BLOCK,
            ),
        ),
        (Knob("rows at work"), Knob("capacity filled up", on={"tails": "multiplied"})),
        ("ep",),
        second=True,
    ),
    summary="Rows beyond a capacity are dropped; buffers have a fixed size.",
    source="megatron-core-moe-readme",
)
methods.add(
    "load-balancing",
    Method(
        "Load-balance loss / bias",
        "experts",
        112,
        (Pair("experts as they are asked for", {"routing": "balanced", "rank_imbalance": 1.0}, {}, BLOCK),),
        classes=("ep",),
        second=True,
    ),
    summary="Experts asked for alike.",
    source="olmo-core-report",
)
methods.add(
    "hot-replication",
    Method(
        "Hot-expert replication",
        "experts",
        113,
        (
            Pair(
                "one copy of each expert",
                {"replicated_experts": 4},
                {"replicated_experts": 0},
                BLOCK | {"routing": SKEW, "rank_imbalance": 1.0},
            ),
        ),
        classes=("ep",),
        needs="ep > 1",
        second=True,
    ),
    summary="Four hot experts on every rank.",
    source="olmo-core-report",
)
methods.add(
    "lora",
    Method(
        "LoRA / QLoRA",
        "state",
        114,
        (Pair("all weights trained", {"adapter": "lora:16"}, {"adapter": "none"}, WHOLE_WEIGHTS),),
        (Knob("frozen weights in BF16"), Knob("frozen weights in 4 bits", on={"adapter": "qlora:16"})),
        ("dp",),
        second=True,
    ),
    summary="Matrices of rank 16 trained beside frozen weights.",
    source="hu2021-lora",
)
