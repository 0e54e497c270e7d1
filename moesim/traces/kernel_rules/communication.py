"""Kernels that move data between GPUs.

The names of NCCL's kernels tell the collective (older ones the algorithm too); since 2.18 the protocol in them is
always LL.
"""

from moesim.traces.kernel_rule import RULES, KernelRule

RULES.add(
    "nccl",
    KernelRule(
        "nccl",
        r"^(?:void )?(?:nccl(?:Dev)?Kernel|ncclSym|nccl[A-Z]\w*Kernel)|^rccl|mscclpp|msccl_",
        10,
        communication=True,
    ),
    summary="NCCL and RCCL: ncclKernel_ (to 2.17), ncclDevKernel_ (since), symmetric kernels",
    source="nccl-2.30.7",
)
RULES.add(
    "deepep",
    KernelRule(
        "deepep",
        r"(?:deep_ep|internode(?:_ll)?|intranode)::\w*|(?:^|\W)(?:notify_dispatch|cached_notify)\w*",
        11,
        communication=True,
    ),
    summary="DeepEP: dispatch, combine and their notifications",
    source="deepep",
)
RULES.add(
    "nvshmem",
    KernelRule("nvshmem", r"nvshmem", 12, communication=True),
    summary="NVSHMEM",
    source="public-traces",
)
RULES.add(
    "custom-all-reduce",
    KernelRule(
        "custom-all-reduce",
        r"cross_device_reduce|multimem_(?:all_reduce|one_shot|all_gather)|(?:one|two)_?shot_all_?reduce"
        r"|(?:one|two)ShotAllReduce|allreduce_fusion_kernel|lamport_\w*all_?reduce",
        13,
        communication=True,
    ),
    summary="all-reduces of vLLM, TensorRT-LLM and PyTorch's symmetric memory",
    source="vllm-custom-all-reduce",
)
