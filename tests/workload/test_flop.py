"""Work summed over the ranks is the work of the model, however it is sharded."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from moesim.workload.embedding import embedding_block, head_block, mtp_block
from moesim.workload.layers import layer_block, recomputed
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, LatentAttention, Layer, Model, Moe
from moesim.workload.ops import AttentionCore, ExpertLeg, Gemm, Message
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.setting import LayoutPasses, Setting

WORLD, LENGTH = 256, 1024
GROUPED = Attention(32, 16, 64, qk_norm=True)
LATENT = LatentAttention(32, kv_rank=128, nope_dim=64, rope_dim=32, value_dim=64, q_rank=256)
ROUTED = Moe(64, 4, 512, shared_size=1024)
LAYER = Layer(GROUPED, ROUTED)
LAYERS = {
    "grouped": LAYER,
    "window": Layer(replace(GROUPED, window=128), ROUTED),
    "chunk": Layer(replace(GROUPED, chunk=256), ROUTED),
    "latent": Layer(LATENT, ROUTED),
    "latent, whole queries": Layer(replace(LATENT, q_rank=None), ROUTED),
    "dense": Layer(GROUPED, Dense(2048)),
    "plain feed-forward, four norms": Layer(GROUPED, Dense(2048, gated=False), norms=4),
}
PASSES = LayoutPasses(5.0, 8.0, 8.0, 5.0, 1)

MESHES = [
    (Mesh(WORLD, tp, 1, pp, etp, ep), 3 if tp == 2 else 1)
    for tp, pp, ep, etp in product((1, 2, 8), (1, 4), (1, 32), (1, 2))
]
each_mesh = pytest.mark.parametrize(("mesh", "sequences"), MESHES)
each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
CONTEXT = [(tp, cp, kind) for tp, cp in product((1, 2), (1, 2, 8)) for kind in ("ring", "ulysses")]
each_context = pytest.mark.parametrize(("tp", "cp", "cp_kind"), CONTEXT)


def setting(mesh, sequences, **changes):
    return Setting(sequences, LENGTH, mesh, recipes.get("bf16"), passes=PASSES, **changes)


def toy(layer, mtp=0):
    return Model("toy", 1024, 32_000, (layer,) * 6, mtp_layers=mtp)


MODEL = toy(LAYER)


def blocks(mesh, sequences, layer=LAYER, **changes):
    run = setting(mesh, sequences, **changes)
    return (
        layer_block(layer, MODEL.hidden, run),
        embedding_block(MODEL.hidden, run),
        head_block(MODEL.hidden, MODEL.vocab, run),
    )


def flop(ops, kinds=(Gemm, AttentionCore)):
    return sum(op.work.flop for op in ops if isinstance(op.work, kinds))


def stage_ranks(mesh):
    """Ranks that work on one micro-batch of each pipeline: all of a stage, over all replicas."""
    return mesh.world / mesh.pp


def of_all_ranks(mesh, sequences, layer, **changes):
    layers, embedding, head = blocks(mesh, sequences, layer, **changes)
    everything = 6 * (flop(layers.forward) + flop(layers.backward))
    everything += sum(flop(block.forward) + flop(block.backward) for block in (embedding, head))
    return everything * stage_ranks(mesh)


@each_mesh
@each_layer
def test_the_step_of_all_ranks_is_the_formula_of_the_model(mesh, sequences, layer):
    tokens = sequences * LENGTH * mesh.dp
    expected = tokens * toy(layer).flop_per_token(LENGTH)
    assert of_all_ranks(mesh, sequences, layer) == pytest.approx(expected, rel=1e-12)


@each_context
@each_layer
def test_context_parallelism_splits_the_work_and_adds_none(tp, cp, cp_kind, layer):
    mesh = Mesh(WORLD, tp, cp, 1, 1, 8)
    tokens = 2 * LENGTH * mesh.dp
    found = of_all_ranks(mesh, 2, layer, cp_kind=cp_kind)
    assert found == pytest.approx(tokens * toy(layer).flop_per_token(LENGTH), rel=1e-12)


def test_a_module_for_the_second_next_token_is_a_layer_a_projection_and_a_head():
    run = setting(Mesh(WORLD, 2, 1, 1, 1, 8), 1)
    extra = (mtp_block(1024, run), layer_block(LAYER, 1024, run), head_block(1024, 32_000, run))
    work = sum(flop(block.forward) + flop(block.backward) for block in extra) * WORLD
    tokens = LENGTH * WORLD / 2
    one_more = toy(LAYER, mtp=1).flop_per_token(LENGTH) - MODEL.flop_per_token(LENGTH)
    assert work == pytest.approx(tokens * one_more, rel=1e-12)


@each_mesh
@pytest.mark.parametrize("category", ["gemm", "grouped_gemm", "attention"])
def test_the_backward_is_twice_the_forward_in_each_category(mesh, sequences, category):
    for block in blocks(mesh, sequences):
        forward, backward = (
            flop([op for op in ops if op.category == category]) for ops in (block.forward, block.backward)
        )
        assert backward == pytest.approx(2 * forward, rel=1e-12)


@each_mesh
@each_layer
def test_every_product_has_its_dgrad_and_its_wgrad(mesh, sequences, layer):
    for block in blocks(mesh, sequences, layer):
        for op in block.forward:
            if isinstance(op.work, Gemm):
                dims = sorted(map(float, (op.work.m, op.work.n, op.work.k)))
                for suffix in ("dgrad", "wgrad"):
                    back = next(other for other in block.backward if other.name == f"{op.name}-{suffix}")
                    assert sorted(map(float, (back.work.m, back.work.n, back.work.k))) == pytest.approx(dims)
                    assert back.work.accumulate == (suffix == "wgrad")


@each_mesh
def test_every_token_is_sent_to_its_experts_once_a_leg(mesh, sequences):
    layer = blocks(mesh, sequences)[0]
    legs = [op.work for op in (*layer.forward, *layer.backward) if isinstance(op.work, ExpertLeg)]
    assert [leg.direction for leg in legs] == ["dispatch", "combine"] * 2
    for leg in legs:
        assert leg.tokens * stage_ranks(mesh) == pytest.approx(sequences * LENGTH * mesh.dp)
        assert leg.busy_tokens == leg.tokens
        assert leg.row_bytes == 2 * MODEL.hidden
    assert [leg.counts for leg in legs] == [True, False, False, False]


@each_mesh
def test_the_experts_of_all_ranks_see_every_route_once(mesh, sequences):
    layer = blocks(mesh, sequences)[0]
    up = next(op.work for op in layer.forward if op.name == "expert-up")
    rows_of_a_group = up.m * up.groups * mesh.ep  # the etp ranks share the rows of their group
    groups = stage_ranks(mesh) / (mesh.ep * mesh.etp)
    assert rows_of_a_group * groups == pytest.approx(sequences * LENGTH * mesh.dp * LAYER.moe.top_k)


@each_mesh
@each_layer
def test_full_recomputation_is_one_more_forward(mesh, sequences, layer):
    whole = blocks(mesh, sequences, layer)[0]
    full = recomputed(whole, (policies.get("full"),))
    assert flop(full.recompute) == pytest.approx(flop(full.forward), rel=1e-15)
    assert [op.name for op in full.recompute] == [f"{op.name} again" for op in full.forward]


SPLIT_TRAFFIC = ("attention", "memory_bound", "ep")
"""Categories whose bytes are those of the tokens; weights of a GEMM are read by each rank that computes with them."""


def moved(ops, categories):
    """HBM bytes of kernels, and message bytes that a rank sends to its experts."""
    found = 0.0
    for op in ops:
        if op.category in categories:
            leg = isinstance(op.work, ExpertLeg)
            found += op.work.tokens * op.work.top_k * op.work.row_bytes if leg else op.work.hbm_bytes
    return found


@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (2, 1), (1, 2), (4, 8)])
@each_layer
def test_bytes_of_tokens_are_split_like_the_tokens(tp, cp, layer):
    """Over all ranks, kernels read and write as much, and experts are sent as much, whatever the degrees."""

    def whole(mesh):
        block = blocks(mesh, 2, layer)[0]
        return moved((*block.forward, *block.backward), SPLIT_TRAFFIC) * mesh.tp * mesh.cp

    expected = whole(Mesh(WORLD, 1, 1, 1, 1, 1))
    for ep, etp in product((1, 8, 32), (1, 2)):
        assert whole(Mesh(WORLD, tp, cp, 1, etp, ep)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_ring_passes_all_keys_and_values_and_ulysses_all_heads(cp):
    def sizes(kind):
        layer = blocks(Mesh(WORLD, 1, cp, 1, 1, 8), 2, cp_kind=kind)[0]
        return {op.name: op.work.size for op in layer.forward if isinstance(op.work, Message) and op.work.axis == "cp"}

    keys_and_values = 2 * 2 * LENGTH * 16 * (64 + 64)  # two bytes, two sequences, of 16 heads
    assert sizes("ring") == {"key-value-ring": keys_and_values}
    queries, outputs = (2 * 2 * LENGTH * 32 * 64 / cp for _ in range(2))
    into, out = sizes("ulysses").values()
    assert into == queries + keys_and_values / cp
    assert out == outputs


def test_array_degrees_give_the_scalar_counts():
    meshes, sequences = zip(*MESHES, strict=True)
    names = ("tp", "cp", "pp", "etp", "ep")
    mesh = Mesh(WORLD, *(np.array([float(getattr(one, name)) for one in meshes]) for name in names))
    many = blocks(mesh, np.array(sequences, dtype=float))
    for index, (one, count) in enumerate(MESHES):
        for block, single in zip(many, blocks(one, count), strict=True):
            for ops, singles in ((block.forward, single.forward), (block.backward, single.backward)):
                assert [op.name for op in ops] == [op.name for op in singles]
                found = np.array([np.broadcast_to(op.work.flop, len(MESHES))[index] for op in ops])
                assert found == pytest.approx([op.work.flop for op in singles], rel=1e-15)
                moved = np.array([np.broadcast_to(op.work.hbm_bytes, len(MESHES))[index] for op in ops])
                assert moved == pytest.approx([op.work.hbm_bytes for op in singles], rel=1e-15)
