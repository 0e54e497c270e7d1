"""Adapters: trained parameters, products, kept tensors and model FLOPs, by hand."""

from dataclasses import replace

import pytest

from moesim.cost.blocks import price_blocks
from moesim.workload.adapters import adapters
from moesim.workload.adapting import Adapting, adapted_block, frozen_block
from moesim.workload.layers import layer_block, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, Layer, Model, Moe
from moesim.workload.ops import Gemm
from moesim.workload.precision import recipes
from moesim.workload.setting import Setting

GPT3 = Model("gpt3", 12288, 50257, (Layer(Attention(96, 96, 128), Dense(4 * 12288, gated=False)),) * 96)
ROUTED = Layer(Attention(16, 4, 128), Moe(32, 4, 768, shared_size=512))
LORA4 = Adapting(adapters.get("lora"), 4)


def setting(**changes):
    return replace(Setting(1.0, 1024, Mesh(8, 2, 1, 1, 1, 4), recipes.get("bf16")), **changes)


def gemms(ops):
    return {op.name: op.work for op in ops if isinstance(op.work, Gemm)}


def test_rank_4_on_the_attention_of_gpt_3_trains_37_7_million():
    assert LORA4.model_params(GPT3) == 96 * 4 * 4 * 2 * 12288 == 37_748_736
    assert LORA4.active_params(GPT3) == 37_748_736


def test_a_bottleneck_of_rank_r_trains_2_r_d_a_layer():
    assert Adapting(adapters.get("bottleneck"), 64).model_params(GPT3) == 96 * 2 * 64 * 12288


def test_pairs_beside_every_matrix_of_a_routed_layer():
    everywhere = Adapting(adapters.get("lora"), 8, "linear")
    model = Model("moe", 2048, 32000, (ROUTED,))
    attention = (2048 + 2048) + 2 * (2048 + 512) + (2048 + 2048)
    shared, expert = 3 * (2048 + 512), 3 * (2048 + 768)
    assert everywhere.model_params(model) == 8 * (attention + shared + 32 * expert)
    assert everywhere.active_params(model) == 8 * (attention + shared + 4 * expert)
    # tp 2 splits the wide side of a column-parallel pair and the inputs of a row-parallel one; 8 of 32 experts
    params = everywhere.layer_params(ROUTED, 2048, Mesh(8, 2, 1, 1, 1, 4))
    split = 2048 + 1024 + 2 * (2048 + 256) + 1024 + 2048 + 2 * (2048 + 256) + 256 + 2048
    assert params.dense == 8 * split
    assert params.routed == 8 * 8 * expert


@pytest.mark.parametrize("layer", [GPT3.layers[0], ROUTED])
def test_frozen_weights_have_no_gradient_and_keep_no_input(layer):
    plain = layer_block(layer, 2048, setting())
    frozen = frozen_block(plain)
    dropped = {op.name for op in plain.backward} - {op.name for op in frozen.backward}
    assert dropped == {op.name for op in plain.backward if op.held_bytes is not None}
    assert frozen.forward == plain.forward
    assert saved_bytes(frozen) < saved_bytes(plain)
    names = {op.name for op in frozen.backward}
    assert all(set(op.needs) <= names for op in frozen.backward)


def test_a_pair_runs_small_products_beside_its_matrix():
    block = adapted_block(layer_block(GPT3.layers[0], 12288, setting()), GPT3.layers[0], 12288, 512, LORA4)
    forward, backward = gemms(block.forward), gemms(block.backward)
    tokens, width = 1024, 12288 / 2  # tp 2
    assert forward["qkv-adapter-down"].flop == 2 * tokens * 12288 * 12
    assert forward["qkv-adapter-up"].flop == 2 * tokens * 3 * width * 4
    assert forward["projection-adapter-down"].flop == 2 * tokens * width * 4
    assert backward["projection-adapter-up-wgrad"].flop == 2 * tokens * 12288 * 4
    assert backward["projection-adapter-down-wgrad"].flop == 2 * tokens * width * 4
    assert backward["qkv-adapter-down-dgrad"].flop == 2 * tokens * 12288 * 12
    assert not {name for name in backward if name.endswith("wgrad") and "adapter" not in name}
    kept = {saved.name: saved.num_bytes for saved in block.saved}
    assert kept["qkv-adapter-inner"] == 2 * tokens * 12
    assert "input-norm-output" in kept  # the input of a pair
    assert "mlp-norm-output" not in kept


def test_weights_in_four_bits_are_brought_back_before_each_product():
    quantised = Adapting(adapters.get("qlora"), 4)
    layer = GPT3.layers[0]
    plain = adapted_block(layer_block(layer, 12288, setting()), layer, 12288, 512, LORA4)
    block = adapted_block(layer_block(layer, 12288, setting()), layer, 12288, 512, quantised)
    extra = [op for op in block.forward + block.backward if op.name.endswith("-dequantise")]
    moved = sum(op.work.hbm_bytes for op in extra)
    assert moved == pytest.approx(2 * 12 * 12288**2 / 2 * (4.127 / 8 + 2))
    rest = [op for op in block.forward + block.backward if op not in extra]
    assert [op.name for op in rest] == [op.name for op in plain.forward + plain.backward]


def test_model_flop_count_two_thirds_for_what_is_frozen():
    whole = GPT3.flop_per_token(2048)
    matrices = 96 * 12 * 12288**2 + 12288 * 50257
    assert LORA4.flop_per_token(GPT3, whole) == pytest.approx(whole - 2 * matrices + 6 * 37_748_736, rel=1e-15)


def test_the_products_of_a_step_follow_the_model_flop(small):
    strategy = small.strategy.replace(adapter="lora:8", tp=1, ep=1, pp=1, schedule="none")
    plan = small.plan(strategy)
    blocks = price_blocks(plan)
    ops = [
        op
        for name, b in blocks.items()
        for op in (b.block.forward + b.block.backward) * (1 if isinstance(name, str) else 8)
    ]
    flop = sum(float(op.work.flop) for op in ops)
    assert flop == pytest.approx(plan.flop_per_token * 2048, rel=1e-12)
