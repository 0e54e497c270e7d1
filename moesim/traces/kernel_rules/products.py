"""Attention, convolutions and matrix products: order matters, since names of one contain words of another."""

from moesim.traces.kernel_rule import RULES, KernelRule

RULES.add(
    "attention",
    KernelRule(
        "attention",
        r"flash_(?:fwd|bwd)|flash_attn|FlashAttn|flash::|fmha|AttentionKernel|attention_kernel|unified_attention"
        r"|paged_attention|_attn_(?:fwd|bwd)|attn_fwd|attn_bwd|mha_(?:fwd|bwd)|sdpa|cudnn\w*flash|FlashInfer"
        r"|BatchPrefillWith|BatchDecodeWith|flash_mla|\bmla_\w*kernel|aiter.*fmha|cunn_attention",
        20,
        unless=r"reshape_and_cache",
    ),
    summary="FlashAttention, cuDNN, xFormers, FlashInfer, Triton attention",
    source="public-traces",
)
RULES.add(
    "convolution",
    KernelRule(
        "convolution",
        r"scudnn|fprop|dgrad|wgrad|[iI]mplicit_?[gG]emm|convolve|conv(?:olution)?(?:1|2|3)?d|Conv(?:olution)?[A-Z_0-9]"
        r"|igemm_(?:fwd|bwd|wrw)|bwd_weight|bwd_data|winograd|Winograd|cudnn::cnn|conv_|_conv|miopen\w*Conv",
        21,
        unless=r"[tT]ype_?[cC]onv|convert|Convert|dgrad_gelu",
    ),
    summary="cuDNN, MIOpen and Composable Kernel convolutions, also those whose name says gemm",
    source="public-traces",
)
RULES.add(
    "gemm",
    KernelRule(
        "gemm",
        r"gemm|GEMM|Gemm|nvjet|cutlass|cublas|gemv|Cijk_|splitKreduce|split[kK]_reduce|s\d+gemm|bmm_|\bmatmul_kernel"
        r"|wgmma|deep_gemm|xmma|_matmul_|tinygemm|marlin",
        22,
        unless=r"permute|transpose|elementwise_kernel|cutlass::reduction|multi_tensor|quant(?:ize)?_",
    ),
    summary="cuBLAS, CUTLASS, nvjet, DeepGEMM, hipBLASLt (Cijk), Triton matrix products, gemv, split-K sums",
    source="public-traces",
)
