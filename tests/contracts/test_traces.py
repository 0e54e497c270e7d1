"""Everything registered that reads traces: readers tell files apart, rules tell kernels apart."""

import re

import pytest

from moesim.spec.check import sources
from moesim.traces.kernel_rule import RULES, classes
from moesim.traces.opening import READERS

HEADS = {
    "kineto": b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel"}]}',
    "nsys": b"SQLite format 3\x00",
    "ncu": b'"ID","Process ID","Kernel Name","Metric Name"\n',
    "nccl-tests": b"# nThread 1 nGpus 8 minBytes 8\n",
    "nccl-inspector": b'{"header": {"id": "0x1"}, "coll_perf": {"coll": "AllReduce"}}',
    "flight-recorder": b"\x80\x02}q\x00",
    "pytorch-et": b'{"schema": "1.0.1", "pid": 1, "nodes": []}',
    "chakra": b'{"workload_graph": []}',
    "chakra-protobuf": b"\x09\x12\x07\n\x06schema\x00",
}


@pytest.mark.parametrize("entry", READERS.entries(), ids=lambda entry: entry.name)
def test_a_reader_knows_its_files_and_no_others(entry):
    assert entry.source in sources()
    assert [name for name, head in HEADS.items() if entry.item.sniff(head)] == [entry.name]
    assert not any(entry.item.sniff(head) for head in (b"", b"\n", b"{}", b"[]", b"hello", b"\x00" * 64))


@pytest.mark.parametrize("entry", RULES.entries(), ids=lambda entry: entry.name)
def test_a_rule_has_a_source_and_patterns(entry):
    assert entry.source in sources()
    assert not entry.item.matches("")
    for pattern in (entry.item.pattern, entry.item.unless):
        re.compile(pattern)


@pytest.mark.parametrize(
    ("family", "names"),
    [
        (
            "nccl",
            (
                "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
                "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
                "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)",
            ),
        ),
        (
            "deepep",
            ("void deep_ep::internode::dispatch<false, 8>(int)", "void deep_ep::intranode::combine<__nv_bfloat16>()"),
        ),
        (
            "custom-all-reduce",
            ("multimem_all_reduce_kernel<c10::BFloat16>", "void vllm::cross_device_reduce_1stage<half, 8>()"),
        ),
        (
            "gemm",
            (
                "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
                "volta_sgemm_64x64_tn",
                "void deep_gemm::fp8_gemm_kernel<7168u, 2048u>()",
                "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256",
                "void cublasLt::splitKreduce_kernel<32, 16, int>()",
            ),
        ),
        (
            "attention",
            (
                "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>()",
                "kernel_unified_attention_3d",
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16",
            ),
        ),
        (
            "convolution",
            (
                "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
                "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32",
                "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock",
            ),
        ),
        ("index", ("void vllm::reshape_and_cache_flash_kernel<float>()",)),
        ("optimizer", ("void at::native::multi_tensor_apply_kernel<AdamFunctor<float>>()",)),
    ],
)
def test_kernels_are_what_they_are(family, names):
    rules = classes()
    for name in names:
        rule = rules.rule_of(name)
        assert rule is not None, name
        assert (rule.family, rule.communication) == (family, family in ("nccl", "deepep", "custom-all-reduce")), name


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int>()", "gemm"),
        ("at::native::vectorized_elementwise_kernel<4, at::native::typeConvert>", "convolution"),
        ("grouped_gemm::cuda::utils::transpose<float>", "gemm"),
        ("reshape_and_cache_flash_kernel", "attention"),
    ],
)
def test_words_inside_other_names_mislead_nobody(name, family):
    rule = classes().rule_of(name)
    assert rule is None or rule.family != family
