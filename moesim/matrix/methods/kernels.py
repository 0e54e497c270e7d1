"""Products of the experts, number formats, one persistent kernel."""

from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.situation import BySkew, Formula

REPORT = "olmo-core-report"
ROWS = {"transport": "nvshmem-rowwise"}
MXFP8 = {"precision": "mxfp8", "fp8_params": True}
BF16 = {"precision": "bf16", "fp8_params": False, "dispatch_precision": "bf16"}
CAPACITY = {"capacity_factor": 1.25, "capacity_per": BySkew("rank", "expert")}
INSIDE = {"ep": Formula("min(max(ep, 2), domain)"), "etp": 1, "recompute": ()}

methods.add(
    "grouped-gemm",
    Method(
        "Grp GEMM",
        "kernels",
        12,
        (
            Pair(
                "a batched product with padding", {"expert_gemm": "grouped"}, {"expert_gemm": "padded"} | CAPACITY, ROWS
            ),
            Pair("a loop of the host", {"expert_gemm": "grouped"}, {"expert_gemm": "loop"}, ROWS, families=("host",)),
        ),
        (Knob("offsets on the device"), Knob("offsets on the host", on={"offsets": "host"})),
    ),
    summary="One kernel over all experts of a rank.",
    source=REPORT,
)
methods.add(
    "mxfp8",
    Method(
        "MXFP8",
        "kernels",
        13,
        (Pair("BF16", MXFP8 | {"dispatch_precision": "recipe"}, BF16, ROWS),),
        (
            Knob("scales laid out by the cast"),
            Knob("scales swizzled", on={"scales": "swizzled"}),
            Knob("caches saved", on={"saved_caches": True}),
        ),
        classes=("ep",),
    ),
    summary="Eight-bit values with a scale for 32, in products, kept inputs and dispatched rows.",
    source=REPORT,
)
FUSED = MXFP8 | ROWS | {"dispatch_precision": "recipe", "expert_kernel": "fused", "overlap_shared_expert": False}
SEPARATE = {"expert_kernel": "separate", "overlap_shared_expert": Formula("shared_size > 0")}
methods.add(
    "megamoe",
    Method(
        "MegaMoE",
        "fusion",
        20,
        (
            Pair("the same in separate kernels", FUSED, FUSED | SEPARATE | {"tails": "touched"}, INSIDE),
            Pair("block all-to-all", FUSED, MXFP8 | SEPARATE | {"transport": "nccl-alltoall"}, INSIDE),
            Pair("separate kernels in BF16", FUSED, BF16 | SEPARATE | ROWS, INSIDE, ("compute",)),
        ),
        (
            Knob("forward and backward"),
            Knob("forward alone", on={"expert_kernel": "fused-forward"}),
            Knob("rows in BF16", on={"dispatch_precision": "bf16"}),
            Knob("counts on the host", on={"metadata": "host"}),
        ),
        classes=("ep",),
    ),
    summary="One persistent kernel for dispatch, experts and combine.",
    source=REPORT,
)
