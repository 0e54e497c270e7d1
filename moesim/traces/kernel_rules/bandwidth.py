"""Kernels that memory bounds: norms, softmax, elementwise work, sums, lookups, optimizers."""

from moesim.traces.kernel_rule import RULES, KernelRule

for order, (name, family, pattern, unless, summary) in enumerate(
    (
        ("softmax", "softmax", r"[sS]oft_?[mM]ax", "", "softmax and its backward"),
        (
            "normalization",
            "normalization",
            r"[lL]ayer_?[nN]orm|[bB]atch_?[nN]orm|RMSNorm|[rR]ms_?[nN]orm|Rmsnorm|[gG]roup_?[nN]orm|bn_(?:fw|bw)"
            r"|BatchNorm|norm_(?:fwd|bwd)|WelfordOps|_norm_kernel",
            "",
            "layer, RMS, batch and group norms",
        ),
        (
            "optimizer",
            "optimizer",
            r"multi_tensor_apply|[aA]dam(?:W|_|Functor|Math)|fused_adam|lamb_|sgd_",
            r"split_embedding",
            "multi-tensor updates of parameters",
        ),
        (
            "routing",
            "routing",
            r"moe_align|topk_gating|topkGating|permute_(?:tokens|with)|moe_permute|moe_sum|grouped_topk|_routing_",
            "",
            "routing of tokens to experts",
        ),
        (
            "index",
            "index",
            r"split_embedding|[eE]mbedding|index(?:ing|_)|Index|[gG]ather|[sS]catter|RadixSort|[sS]ort|rotary|cub::"
            r"|topk|TopK|reshape_and_cache",
            r"elementwise_kernel",
            "lookups, gathers, scatters, sorts, caches",
        ),
        (
            "elementwise",
            "elementwise",
            r"elementwise|CatArrayBatchedCopy|triton_poi|fused_dropout|direct_copy|FillFunctor|_act_and_mul|silu|gelu"
            r"|swiglu|typeConvert|copy_kernel|triton_per|cast_|transpose",
            "",
            "elementwise kernels, copies by kernels, concatenations, casts, Triton pointwise",
        ),
        (
            "reduction",
            "reduction",
            r"reduce_kernel|triton_red|reduce_1Block|DeviceReduce|cutlass::reduction|dot_kernel|[rR]educe[A-Z_]",
            "",
            "sums and other reductions",
        ),
    )
):
    RULES.add(
        name,
        KernelRule(family, pattern, 30 + order, unless),
        summary=summary,
        source="pytorch-kernels",
    )
