"""The attention core as the software runs it: unfused, with FlashAttention 2, or with the latest kernel."""

from dataclasses import replace

import pytest

from moesim.cost.attention import attention_time
from moesim.studies.step_factors import at_factors
from moesim.workload.layers import layer_block
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, Layer
from moesim.workload.ops import AttentionCore, Gemm, Traffic
from moesim.workload.precision import recipes
from moesim.workload.setting import Fusion, Setting

LENGTH, HIDDEN, HEADS = 2048, 6144, 64
LAYER = Layer(Attention(HEADS, HEADS, 96), Dense(4 * HIDDEN, gated=False))


def block(attention, cp_kind="ulysses", cp=1):
    mesh = Mesh(8, 8 // cp, cp, 1, 1, 1)
    fusion = Fusion(attention=attention)
    return layer_block(LAYER, HIDDEN, Setting(4, LENGTH, mesh, recipes.get("bf16"), cp_kind=cp_kind, fusion=fusion))


def core(made, backward):
    return [op for op in (made.backward if backward else made.forward) if op.name.startswith("attention-")]


@pytest.mark.parametrize("backward", [False, True])
def test_without_a_fused_kernel_the_mask_saves_nothing(backward):
    """Products over the whole square, twice the model FLOPs of a causal mask."""
    products = [op for op in core(block("unfused"), backward) if isinstance(op.work, Gemm)]
    fused = next(op for op in core(block("fused"), backward) if isinstance(op.work, AttentionCore))
    assert sum(op.work.flop for op in products) == pytest.approx(2 * fused.work.flop)


def test_scores_pass_memory_once_a_kernel():
    scores = 4 * HEADS / 8 * LENGTH**2
    moved = {
        op.name: op.work.hbm_bytes / scores
        for backward in (False, True)
        for op in core(block("unfused"), backward)
        if isinstance(op.work, Traffic) and ("softmax" in op.name or "dropout" in op.name)
    }
    assert moved == {
        "attention-softmax": 4,
        "attention-dropout": 5,
        "attention-dropout-backward": 5,
        "attention-softmax-backward": 6,
    }


def test_five_bytes_a_score_are_kept():
    """5 a s^2 b of Korthikanti et al. (2022), section 4.1."""
    kept = {
        name: sum(s.num_bytes for s in block(name).saved if "attention-" in s.name) for name in ("fused", "unfused")
    }
    statistics = 4 * 4 * LENGTH * HEADS / 8
    assert kept["unfused"] - (kept["fused"] - statistics) == pytest.approx(5 * 4 * HEADS / 8 * LENGTH**2)


def test_a_ring_splits_the_queries_and_keeps_the_keys():
    split = [op.work for op in core(block("unfused", "ring", cp=2), False) if isinstance(op.work, Gemm)]
    whole = [op.work for op in core(block("unfused"), False) if isinstance(op.work, Gemm)]
    assert sum(work.flop for work in split) == pytest.approx(sum(work.flop for work in whole))  # twice the heads
    assert [work.n for work in split] == [work.n for work in whole]


@pytest.mark.parametrize("backward", [False, True])
def test_flash_attention_2_on_an_h100_as_reported(qwen, backward):
    """355 TFLOP/s forward and 337 backward at 32,768 tokens, 8 heads of 128 (flash-attention issue 1051)."""
    work = AttentionCore(1, 8, 8, 32_768, 16_384, 128, 128, backward, "flash2")
    gpu = at_factors(qwen, {}).machine.gpu
    time = attention_time(work, gpu)
    flop = work.flop / 2 * 2.5 if backward else work.flop  # five products are executed
    assert flop / time / 1e12 == pytest.approx(337 if backward else 355, rel=0.03)
    assert time > attention_time(replace(work, kernel="fused"), gpu)
