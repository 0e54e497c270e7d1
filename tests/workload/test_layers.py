"""What a layer keeps between forward and backward, and the order in which its operations wait for each other."""

from dataclasses import replace
from itertools import product

import pytest

from moesim.workload.layers import attention_part, layer_block, recomputed, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, LatentAttention, Layer, Moe
from moesim.workload.ops import CATEGORIES, ExpertLeg, Gemm, Message, Traffic
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.setting import ExpertProducts, Fusion, LayoutPasses, Setting

LENGTH, HIDDEN = 4096, 2048
LAYER = Layer(Attention(32, 4, 128, True), Moe(64, 4, 768))
SHARED = Layer(Attention(32, 4, 128, True), Moe(64, 4, 768, shared_size=1536))
LATENT = Layer(LatentAttention(32, 512, 128, 64, 128, q_rank=1024), Moe(64, 4, 768))
DENSE = Layer(Attention(32, 4, 128), Dense(8192))
KINDS = {"moe": LAYER, "shared": SHARED, "latent": LATENT, "dense": DENSE, "four norms": replace(DENSE, norms=4)}
PASSES = LayoutPasses(5.0, 8.0, 8.0, 5.0, 1)


def block(tp=1, ep=8, etp=1, cp=1, sequences=1, passes=PASSES, layer=LAYER, precision="bf16", **changes):
    mesh = Mesh(64, tp, cp, 1, etp, ep)
    return layer_block(
        layer, HIDDEN, Setting(sequences, LENGTH, mesh, recipes.get(precision), passes=passes, **changes)
    )


def kept(block):
    return {saved.name: saved.num_bytes for saved in block.saved}


TOKENS, ROW = LENGTH, 2 * LENGTH * HIDDEN
ATTENTION = {
    "layer-input": ROW,
    "input-norm-output": ROW,
    "qkv-output": 2 * TOKENS * (32 + 2 * 4) * 128,
    "rotated-query-key": 2 * TOKENS * (32 + 4) * 128,
    "attention-output": 2 * TOKENS * 32 * 128,
    "attention-logsumexp": 4 * TOKENS * 32,
}
EXPERTS = {
    "expert-input": ROW,
    "expert-norm-output": ROW,
    "router-logits-and-probs": 9 * TOKENS * 64,
    "dispatched-rows": 2 * 4 * TOKENS * HIDDEN,
    "expert-up-output": 2 * 4 * TOKENS * 2 * 768,
    "expert-activation-output": 2 * 4 * TOKENS * 768,
    "row-probs": 4 * 4 * TOKENS,
}


def test_saved_tensors_one_by_one():
    assert kept(block()) == ATTENTION | EXPERTS
    shared = {"shared-up-output": 2 * TOKENS * 2 * 1536, "shared-activation-output": 2 * TOKENS * 1536}
    assert kept(block(layer=SHARED)) == ATTENTION | EXPERTS | shared


def test_saved_tensors_of_a_dense_layer():
    dense = {
        "mlp-input": ROW,
        "mlp-norm-output": ROW,
        "mlp-up-output": 2 * TOKENS * 2 * 8192,
        "mlp-activation-output": 2 * TOKENS * 8192,
    }
    assert kept(block(layer=DENSE)) == ATTENTION | dense
    behind = {"before-output-norm": ROW, "before-mlp-output-norm": ROW}
    assert kept(block(layer=KINDS["four norms"])) == ATTENTION | dense | behind
    plain = kept(block(layer=replace(DENSE, feed_forward=Dense(8192, gated=False))))
    assert plain["mlp-up-output"] == plain["mlp-activation-output"] == 2 * TOKENS * 8192


@pytest.mark.parametrize("layer", [DENSE, KINDS["four norms"]])
def test_experts_change_nothing_of_a_dense_layer_nor_of_attention(layer):
    plain = Setting(1, LENGTH, Mesh(64, 2, 1, 1, 1, 8), recipes.get("bf16"))
    routed = replace(
        plain, passes=PASSES, routed_load=1.5, products=ExpertProducts(waves=2), overlap_shared_expert=True
    )
    assert routed != plain == routed.dense
    assert layer_block(layer, HIDDEN, routed) == layer_block(layer, HIDDEN, plain)
    assert attention_part(LAYER, HIDDEN, routed) == attention_part(LAYER, HIDDEN, plain)


def test_saved_tensors_of_latent_attention():
    latent = {
        "query-latent": 2 * TOKENS * 1024,
        "query-latent-normed": 2 * TOKENS * 1024,
        "kv-latent": 2 * TOKENS * (512 + 64),
        "kv-latent-normed": 2 * TOKENS * 512,
        "query": 2 * TOKENS * 32 * 192,
        "key": 2 * TOKENS * 32 * 192,
        "value": 2 * TOKENS * 32 * 128,
    }
    same = {name: size for name, size in ATTENTION.items() if name not in ("qkv-output", "rotated-query-key")}
    assert kept(block(layer=LATENT)) == same | latent | EXPERTS
    viewed = kept(block(layer=LATENT, fusion=Fusion(latent_value_views=True)))
    assert viewed == same | latent | EXPERTS | {"value": 2 * TOKENS * 32 * (128 + 128)}


def test_a_compiler_keeps_no_rotated_copy_and_weights_in_the_combine_keep_the_outputs():
    compiled = block(fusion=Fusion(compiled=True, weights_in_combine=True))
    assert set(kept(compiled)) - set(kept(block())) == {"expert-output"}
    assert set(kept(block())) - set(kept(compiled)) == {"rotated-query-key"}
    assert kept(compiled)["expert-output"] == 2 * 4 * TOKENS * HIDDEN


def test_traffic_of_the_memory_bound_kernels_one_by_one():
    """Reads and writes in BF16, two bytes a value; copies are of ``tokens x hidden`` values."""
    row, rows = 2 * LENGTH * HIDDEN, 4 * LENGTH
    rotated = 2 * LENGTH * (32 + 4) * 128
    forward = {
        "input-norm": 2 * row,
        "qk-norm": 2 * rotated,
        "rope": 2 * rotated,
        "attention-residual": 3 * row,  # two read, the sum written
        "expert-norm": 2 * row,
        "router-top-k": 24 * LENGTH * 64,
        "permute": 5 * row,
        "sort-by-expert": 8 * row,
        "expert-activation": 2 * rows * (2 * 768 + 768),  # gate and up read, their product written
        "unsort": 8 * row,
        "unpermute": 5 * row,
        "expert-residual": 3 * row,
    }
    backward = {
        "expert-residual-backward": 2 * row,
        "unpermute-backward": 5 * row,
        "unsort-backward": 8 * row,
        "expert-activation-backward": 2 * rows * (2 * 2 * 768 + 768),
        "sort-by-expert-backward": 8 * row,
        "permute-backward": 5 * row,
        "router-top-k-backward": 24 * LENGTH * 64,
        "expert-norm-backward": 4 * row,
        "attention-residual-backward": 2 * row,
        "rope-backward": 2 * rotated,
        "qk-norm-backward": 3 * rotated,
        "input-norm-backward": 4 * row,
    }
    whole = block()
    for ops, expected in ((whole.forward, forward), (whole.backward, backward)):
        found = {op.name: op.work.hbm_bytes for op in ops if op.category == "memory_bound" and op.work.hbm_bytes}
        assert found == expected


def test_expert_parallelism_changes_nothing_that_is_kept():
    # balanced routing: a rank receives as many rows as it sends
    assert {saved_bytes(block(ep=ep)) for ep in (1, 4, 8, 64)} == {saved_bytes(block())}


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_parallelism_divides_what_is_kept(kind):
    for tp in (2, 4):
        whole = saved_bytes(block(layer=KINDS[kind]))
        assert saved_bytes(block(tp=tp, layer=KINDS[kind])) == pytest.approx(whole / tp, rel=1e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cp_kind", ["ring", "ulysses"])
def test_context_parallelism_divides_what_is_kept(kind, cp_kind):
    for cp in (2, 4):
        found = kept(block(cp=cp, layer=KINDS[kind], cp_kind=cp_kind))
        exchanged = found.pop("exchanged-heads", 0.0)
        assert sum(found.values()) == pytest.approx(saved_bytes(block(layer=KINDS[kind])) / cp, rel=1e-15)
        assert (exchanged > 0) == (cp_kind == "ulysses")  # the copies on the other side of the exchange


def test_ulysses_of_one_rank_keeps_no_copies():
    assert kept(block(cp_kind="ulysses")) == kept(block()) | {"exchanged-heads": 0.0}


def test_without_sequence_parallelism_norms_and_residuals_are_kept_whole():
    split, whole = (kept(block(tp=4, layer=DENSE, sequence_parallel=flag)) for flag in (True, False))
    rows = {"layer-input", "input-norm-output", "mlp-input", "mlp-norm-output"}
    assert {name for name in split if split[name] != whole[name]} == rows
    assert all(whole[name] == ROW == 4 * split[name] for name in rows)


def test_twice_the_sequences_keep_twice_as_much():
    assert saved_bytes(block(sequences=2)) == 2 * saved_bytes(block())


def test_a_hot_rank_keeps_the_rows_that_it_gets():
    hot = kept(block(routed_load=1.5))
    rows = {"dispatched-rows", "expert-up-output", "expert-activation-output", "row-probs"}
    for name, size in kept(block()).items():
        assert hot[name] == size * (1.5 if name in rows else 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_full_recomputation_keeps_the_layer_input_only(kind):
    full = recomputed(block(layer=KINDS[kind]), (policies.get("full"),))
    assert [saved.name for saved in full.saved] == ["layer-input"]


ROUTED = {
    "router-logits-and-probs",
    "dispatched-rows",
    "expert-up-output",
    "expert-activation-output",
    "row-probs",
}


@pytest.mark.parametrize(
    ("kind", "names", "dropped"),
    [
        ("moe", ["layernorm"], {"input-norm-output", "expert-norm-output"}),
        ("moe", ["moe_act"], {"expert-activation-output"}),
        ("moe", ["core_attn"], {"attention-logsumexp"}),
        ("moe", ["layernorm", "moe_act"], {"input-norm-output", "expert-norm-output", "expert-activation-output"}),
        ("moe", ["moe"], ROUTED),
        ("shared", ["moe"], ROUTED),
        ("shared", ["shared_experts"], {"shared-up-output", "shared-activation-output"}),
        ("latent", ["mla_up_proj"], {"query", "key", "value"}),
        ("dense", ["mlp"], {"mlp-up-output", "mlp-activation-output"}),
        (
            "dense",
            ["attn"],
            {"qkv-output", "rotated-query-key", "attention-output", "attention-logsumexp"},
        ),
        ("moe", ["mlp", "shared_experts", "mla_up_proj"], set()),
    ],
)
def test_what_a_policy_drops(kind, names, dropped):
    whole = block(layer=KINDS[kind])
    less = recomputed(whole, tuple(policies.get(name) for name in names))
    assert {saved.name for saved in whole.saved} - {saved.name for saved in less.saved} == dropped


@pytest.mark.parametrize(
    ("kind", "name", "repeated"),
    [
        ("moe", "layernorm", ["input-norm", "expert-norm"]),
        ("moe", "moe_act", ["expert-activation"]),
        ("moe", "core_attn", ["key-value-ring", "attention-core", "attention-core-join"]),
        ("shared", "shared_experts", ["shared-enter", "shared-up", "shared-activation", "shared-down", "shared-leave"]),
        ("dense", "mlp", ["mlp-enter", "mlp-up", "mlp-activation", "mlp-down", "mlp-leave"]),
        ("latent", "mla_up_proj", ["query-enter", "query", "kv-up-enter", "kv-up", "rope"]),
    ],
)
def test_what_a_policy_repeats(kind, name, repeated):
    again = recomputed(block(layer=KINDS[kind]), (policies.get(name),)).recompute
    assert [op.name for op in again] == [f"{n} again" for n in repeated]


def test_recomputing_the_experts_repeats_both_legs():
    again = recomputed(block(), (policies.get("moe"),)).recompute
    assert [op.work.direction for op in again if isinstance(op.work, ExpertLeg)] == ["dispatch", "combine"]
    assert any(op.host_sync for op in again)


def test_selective_by_operation_repeats_half_of_the_products_it_names():
    whole = block(layer=DENSE)
    less = recomputed(whole, (policies.get("op-selective"),))
    up, again = (next(op.work for op in ops if op.name.startswith("mlp-up")) for ops in (whole.forward, less.recompute))
    assert again.flop == up.flop / 2
    assert kept(less)["mlp-up-output"] == kept(whole)["mlp-up-output"] / 2
    assert not any(op.name.startswith("attention-core") for op in less.recompute)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("tp", "etp", "kind"), list(product((1, 2), (1, 2), KINDS)))
def test_operations_wait_only_for_earlier_ones_of_their_segment(tp, etp, kind, overlap):
    shared = overlap and kind == "shared"
    whole = block(tp=tp, etp=etp, layer=KINDS[kind], overlap_tp=overlap, overlap_shared_expert=shared)
    for ops in (whole.forward, whole.backward):
        seen: dict[str, str] = {}
        for op in ops:
            assert op.category in CATEGORIES
            for need in op.needs:
                assert seen[need] == op.segment
            assert op.name not in seen
            seen[op.name] = op.segment


def test_tensor_parallel_messages_carry_the_gathered_activations():
    whole = block(tp=2)
    messages = [op for op in (*whole.forward, *whole.backward) if isinstance(op.work, Message)]
    attention = [op.work.size for op in messages if op.work.axis == "tp"]
    assert len(attention) == 5  # forward: gather and scatter; backward: the same, and the input gathered again
    assert set(attention) == {2 * LENGTH * HIDDEN}
    # after the gather over etp a rank holds the rows of all etp ranks
    etp = block(tp=2, etp=2)
    experts = [op.work for op in etp.forward if isinstance(op.work, Message) and op.work.axis == "etp"]
    assert [message.collective for message in experts] == ["all-gather", "reduce-scatter"]
    assert {message.size for message in experts} == {2 * HIDDEN * (LENGTH / 2) * 4 * 2}


def test_latent_attention_gathers_its_latents_and_not_the_hidden_states():
    whole = block(tp=2, layer=LATENT)
    sizes = {op.name: op.work.size for op in whole.forward if isinstance(op.work, Message) and op.work.axis == "tp"}
    assert sizes == {
        "query-enter": 2 * TOKENS * 1024,
        "kv-up-enter": 2 * TOKENS * (512 + 64),
        "projection-leave": 2 * TOKENS * HIDDEN,
    }


def test_without_sequence_parallelism_a_region_is_entered_free_and_left_by_an_all_reduce():
    whole = block(tp=2, layer=DENSE, sequence_parallel=False)
    for ops in (whole.forward, whole.backward):
        kinds = [op.work.collective for op in ops if isinstance(op.work, Message) and op.work.axis == "tp"]
        assert kinds == ["all-reduce"] * 2


def test_layout_passes_that_move_nothing_launch_nothing():
    quiet = block(passes=LayoutPasses(0.0, 0.0, 3.0, 0.0))
    kernels = {op.name: float(op.kernels) for op in quiet.forward}
    assert kernels["permute"] == kernels["sort-by-expert"] == kernels["unpermute"] == 0
    assert kernels["unsort"] > 0
    assert not any(op.host_sync for op in quiet.forward)


@pytest.mark.parametrize("name", [name for name in recipes.names() if recipes.get(name).casts])
def test_low_precision_casts_every_input_once_and_keeps_the_cast(name):
    recipe, low, high = recipes.get(name), block(precision=name), block()
    products = {"qkv", "projection", "expert-up", "expert-down"}
    casts = [op.name for op in low.forward if isinstance(op.work, Traffic) and op.work.cast]
    assert casts == [f"{op.name}-cast" for op in low.forward if op.name in products]
    assert len([op for op in low.backward if op.name.endswith("-dgrad-cast")]) == len(
        products
    )  # dy, for both gradients
    assert not any(op.name.endswith("-wgrad-cast") for op in low.backward)
    qkv = next(op.work for op in low.forward if op.name == "qkv-cast")
    assert qkv.hbm_bytes == recipe.cast_bytes * TOKENS * HIDDEN
    for op in low.forward:
        if isinstance(op.work, Gemm):
            assert op.work.rate == (recipe.rate if op.name in products else "bf16")
    inputs = {"input-norm-output", "dispatched-rows", "expert-activation-output"}
    factors = dict.fromkeys(inputs, recipe.saved_bytes / 2)
    factors["attention-output"] = 1.5 if name == "fp8-delayed" else 1  # the core keeps it in BF16
    for saved, size in kept(high).items():
        assert kept(low)[saved] == size * factors.get(saved, 1)
    assert sum(op.work.flop for op in low.forward) == sum(op.work.flop for op in high.forward)
