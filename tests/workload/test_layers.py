"""What a layer keeps between forward and backward, and the order in which its operations wait for each other."""

from itertools import product

import pytest

from moesim.workload.batch import MicroBatch
from moesim.workload.experts import LayoutPasses
from moesim.workload.layers import layer_block, recomputed, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Layer, Moe
from moesim.workload.ops import CATEGORIES, ExpertLeg, Message
from moesim.workload.recompute import policies

LENGTH, HIDDEN = 4096, 2048
LAYER = Layer(Attention(32, 4, 128, True), Moe(64, 4, 768, True))
PASSES = LayoutPasses(5.0, 8.0, 8.0, 5.0, 1)


def block(tp=1, ep=8, etp=1, sequences=1, passes=PASSES, layer=LAYER):
    return layer_block(layer, HIDDEN, MicroBatch(sequences, LENGTH, Mesh(64, tp, 1, 1, etp, ep)), passes)


def test_saved_tensors_one_by_one():
    tokens, row = LENGTH, 2 * LENGTH * HIDDEN
    rows = 4 * tokens
    expected = {
        "layer-input": row,
        "input-norm-output": row,
        "qkv-output": 2 * tokens * (32 + 2 * 4) * 128,
        "rotated-query-key": 2 * tokens * (32 + 4) * 128,
        "attention-output": 2 * tokens * 32 * 128,
        "attention-logsumexp": 4 * tokens * 32,
        "expert-input": row,
        "expert-norm-output": row,
        "router-logits-and-probs": 9 * tokens * 64,
        "dispatched-rows": 2 * rows * HIDDEN,
        "expert-up-output": 2 * rows * 2 * 768,
        "expert-activation-output": 2 * rows * 768,
        "row-probs": 4 * rows,
    }
    assert {saved.name: saved.num_bytes for saved in block().saved} == expected


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
        "expert-residual-dgrad": 2 * row,
        "unpermute-backward": 5 * row,
        "unsort-backward": 8 * row,
        "expert-activation-backward": 2 * rows * (2 * 2 * 768 + 768),
        "sort-by-expert-backward": 8 * row,
        "permute-backward": 5 * row,
        "router-top-k-backward": 24 * LENGTH * 64,
        "expert-norm-backward": 4 * row,
        "attention-residual-dgrad": 2 * row,
        "rope-dgrad": 2 * rotated,
        "qk-norm-dgrad": 3 * rotated,
        "input-norm-backward": 4 * row,
    }
    whole = block()
    for ops, expected in ((whole.forward, forward), (whole.backward, backward)):
        found = {op.name: op.work.hbm_bytes for op in ops if op.category == "memory_bound"}
        assert found == expected


def test_expert_parallelism_changes_nothing_that_is_kept():
    # balanced routing: a rank receives as many rows as it sends
    assert {saved_bytes(block(ep=ep)) for ep in (1, 4, 8, 64)} == {saved_bytes(block())}


def test_tensor_parallelism_divides_what_is_kept():
    for tp in (2, 4):
        assert saved_bytes(block(tp=tp)) == pytest.approx(saved_bytes(block()) / tp, rel=1e-15)


def test_twice_the_sequences_keep_twice_as_much():
    assert saved_bytes(block(sequences=2)) == 2 * saved_bytes(block())


def test_full_recomputation_keeps_the_layer_input_only():
    full = recomputed(block(), (policies.get("full"),))
    assert [saved.name for saved in full.saved] == ["layer-input"]


@pytest.mark.parametrize(
    ("names", "dropped"),
    [
        (["layernorm"], {"input-norm-output", "expert-norm-output"}),
        (["moe_act"], {"expert-activation-output"}),
        (["core_attn"], {"attention-logsumexp"}),
        (["layernorm", "moe_act"], {"input-norm-output", "expert-norm-output", "expert-activation-output"}),
        (
            ["moe"],
            {
                "router-logits-and-probs",
                "dispatched-rows",
                "expert-up-output",
                "expert-activation-output",
                "row-probs",
            },
        ),
    ],
)
def test_what_a_policy_drops(names, dropped):
    whole = block()
    less = recomputed(whole, tuple(policies.get(name) for name in names))
    assert {saved.name for saved in whole.saved} - {saved.name for saved in less.saved} == dropped


@pytest.mark.parametrize(
    ("name", "repeated"),
    [
        ("layernorm", ["input-norm", "expert-norm"]),
        ("moe_act", ["expert-activation"]),
        ("core_attn", ["attention-core"]),
    ],
)
def test_what_a_policy_repeats(name, repeated):
    assert [op.name for op in recomputed(block(), (policies.get(name),)).recompute] == [f"{n} again" for n in repeated]


def test_recomputing_the_experts_repeats_both_legs():
    again = recomputed(block(), (policies.get("moe"),)).recompute
    assert [op.work.direction for op in again if isinstance(op.work, ExpertLeg)] == ["dispatch", "combine"]
    assert any(op.host_sync for op in again)


@pytest.mark.parametrize(("tp", "etp", "qk_norm"), list(product((1, 2), (1, 2), (True, False))))
def test_operations_wait_only_for_earlier_ones_of_their_segment(tp, etp, qk_norm):
    whole = block(tp=tp, etp=etp, layer=Layer(Attention(32, 4, 128, qk_norm), LAYER.moe))
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
    sizes = {op.name: op.work.size for op in (*whole.forward, *whole.backward) if isinstance(op.work, Message)}
    attention = {name: size for name, size in sizes.items() if "expert" not in name}
    assert len(attention) == 5  # forward: gather and scatter; backward: the same, and the input gathered again
    assert set(attention.values()) == {2 * LENGTH * HIDDEN}
    # after the gather over etp a rank holds the rows of all etp ranks
    etp = block(tp=2, etp=2)
    experts = [op.work for op in etp.forward if isinstance(op.work, Message) and op.work.axis == "etp"]
    assert [message.collective for message in experts] == ["all-gather", "reduce-scatter"]
    assert {message.size for message in experts} == {2 * HIDDEN * (LENGTH / 2) * 4 * 2}


def test_layout_passes_that_move_nothing_launch_nothing():
    quiet = block(passes=LayoutPasses(0.0, 0.0, 3.0, 0.0))
    kernels = {op.name: float(op.kernels) for op in quiet.forward}
    assert kernels["permute"] == kernels["sort-by-expert"] == kernels["unpermute"] == 0
    assert kernels["unsort"] > 0
    assert not any(op.host_sync for op in quiet.forward)
