"""Work summed over the ranks is the work of the model, however it is sharded."""

from itertools import product

import numpy as np
import pytest

from moesim.workload.batch import MicroBatch
from moesim.workload.embedding import embedding_block, head_block
from moesim.workload.experts import LayoutPasses
from moesim.workload.layers import layer_block, recomputed
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Layer, Model, Moe
from moesim.workload.ops import AttentionCore, ExpertLeg, Gemm
from moesim.workload.recompute import policies

WORLD, LENGTH = 256, 1024
LAYER = Layer(Attention(32, 8, 64, True), Moe(64, 4, 512, True))
MODEL = Model("toy", 1024, 32_000, (LAYER,) * 6)
PASSES = LayoutPasses(5.0, 8.0, 8.0, 5.0, 1)

MESHES = [
    (Mesh(WORLD, tp, 1, pp, etp, ep), 3 if tp == 2 else 1)
    for tp, pp, ep, etp in product((1, 2, 8), (1, 4), (1, 32), (1, 2))
]
each_mesh = pytest.mark.parametrize(("mesh", "sequences"), MESHES)


def blocks(mesh, sequences):
    batch = MicroBatch(sequences, LENGTH, mesh)
    return (
        layer_block(LAYER, MODEL.hidden, batch, PASSES),
        embedding_block(MODEL.hidden, batch),
        head_block(MODEL.hidden, MODEL.vocab, batch),
    )


def flop(ops, kinds=(Gemm, AttentionCore)):
    return sum(op.work.flop for op in ops if isinstance(op.work, kinds))


def stage_ranks(mesh):
    """Ranks that work on one micro-batch of each pipeline: all of a stage, over all replicas."""
    return mesh.world / mesh.pp


@each_mesh
def test_the_step_of_all_ranks_is_the_formula_of_the_model(mesh, sequences):
    layer, embedding, head = blocks(mesh, sequences)
    everything = 6 * (flop(layer.forward) + flop(layer.backward))
    everything += sum(flop(block.forward) + flop(block.backward) for block in (embedding, head))
    tokens = sequences * LENGTH * mesh.dp
    assert everything * stage_ranks(mesh) == pytest.approx(tokens * MODEL.flop_per_token(LENGTH), rel=1e-12)


@each_mesh
@pytest.mark.parametrize("category", ["gemm", "grouped_gemm", "attention"])
def test_the_backward_is_twice_the_forward_in_each_category(mesh, sequences, category):
    for block in blocks(mesh, sequences):
        forward, backward = (
            flop([op for op in ops if op.category == category]) for ops in (block.forward, block.backward)
        )
        assert backward == pytest.approx(2 * forward, rel=1e-12)


@each_mesh
def test_every_product_has_its_dgrad_and_its_wgrad(mesh, sequences):
    for block in blocks(mesh, sequences):
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
def test_full_recomputation_is_one_more_forward(mesh, sequences):
    layer = blocks(mesh, sequences)[0]
    full = recomputed(layer, (policies.get("full"),))
    assert flop(full.recompute) == pytest.approx(flop(full.forward), rel=1e-15)
    assert [op.name for op in full.recompute] == [f"{op.name} again" for op in full.forward]


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
