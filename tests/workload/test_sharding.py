"""Parameters and training state: what each rank holds, and that nothing is lost or held twice by accident."""

from itertools import pairwise, product

import pytest

from moesim.base.numeric import Numeric
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, LatentAttention, Layer, Model, Moe
from moesim.workload.sharding import (
    SHARDINGS,
    RankParams,
    Replicas,
    StateTypes,
    layer_params,
    mtp_params,
    stage_params,
    state_bytes,
    update_bytes,
)
from moesim.workload.stages import place_layers

WORLD, LENGTH = 512, 2048
LAYER = Layer(Attention(32, 8, 64, True), Moe(64, 4, 512, shared_size=1024))
LATENT = Layer(LatentAttention(32, 128, 64, 32, 64, q_rank=256), Dense(2048))
MIXED = StateTypes(param=2, grad=4, moment=4, main=4)
DDP, ZERO1, ZERO2, FSDP = (SHARDINGS[name] for name in ("ddp", "zero1", "zero2", "fsdp"))
MESHES = [
    Mesh(WORLD, tp, cp, pp, etp, ep)
    for (tp, cp), pp, ep, etp in product(((1, 1), (2, 2), (8, 1)), (1, 4), (1, 64), (1, 2))
]
each_mesh = pytest.mark.parametrize("mesh", MESHES)
each_sharding = pytest.mark.parametrize("name", SHARDINGS)


def model(tied: bool = False, mtp: int = 0) -> Model:
    return Model("toy", 1024, 32_000, (LATENT, LATENT, *(LAYER,) * 6), tied, mtp_layers=mtp)


def params(mesh: Mesh, tied: bool = False, mtp: int = 0) -> list[RankParams]:
    stages = place_layers(8, int(mesh.pp), "even", mtp)
    assert isinstance(stages, tuple)
    return [stage_params(model(tied, mtp), stage, mesh, LENGTH) for stage in stages]


def replicas(mesh: Mesh) -> Replicas:
    return Replicas(mesh.size("dense-shard"), mesh.size("routed-shard"))


def owned(one: RankParams, mesh: Mesh) -> Numeric:
    return one.dense / (mesh.dp * mesh.cp) + one.routed / mesh.edp


@each_mesh
def test_all_ranks_hold_the_model_as_often_as_it_has_replicas(mesh):
    held = params(mesh)
    ranks = mesh.world / mesh.pp
    routed = sum(one.routed for one in held) * ranks / mesh.edp
    assert routed == pytest.approx(6 * LAYER.routed_params(1024), rel=1e-14)
    # Norms, router and down-projections are whole on each of the tp ranks; the other matrices are split over them.
    whole = sum(layer.whole_params(1024) for layer in model().layers) + 1024
    dense = sum(one.dense for one in held) * ranks / (mesh.dp * mesh.cp)
    assert dense - (mesh.tp - 1) * whole + routed == pytest.approx(model().stored_params, rel=1e-14)


def test_without_tensor_parallelism_a_pipeline_of_one_replica_holds_the_model_once():
    mesh = Mesh(4, 1, 1, 4, 1, 1)
    assert sum(one.total for one in params(mesh)) == model().stored_params


@pytest.mark.parametrize(("pp", "copies"), [(1, 1), (4, 2)])
def test_a_tied_embedding_is_held_by_the_first_and_by_the_last_stage(pp, copies):
    held = sum(one.total for one in params(Mesh(pp, 1, 1, pp, 1, 1), tied=True))
    assert held == model(tied=True).stored_params + (copies - 1) * model().embedding_params


@pytest.mark.parametrize(("pp", "copies"), [(1, 1), (4, 2)])
def test_a_module_for_the_second_next_token_brings_a_layer_and_an_embedding_where_there_is_none(pp, copies):
    mesh = Mesh(pp, 1, 1, pp, 1, 1)
    held = sum(one.total for one in params(mesh, mtp=1))
    assert held == model(mtp=1).stored_params + (copies - 1) * model().embedding_params
    assert mtp_params(model(mtp=1), mesh).total == model(mtp=1).mtp_params
    assert mtp_params(model(mtp=1), mesh).routed == LAYER.routed_params(1024)


def test_learned_positions_are_whole_on_the_first_stage():
    table = Model("toy", 1024, 32_000, (LATENT,) * 8, learned_positions=True)
    stages = place_layers(8, 2, "even")
    assert isinstance(stages, tuple)
    mesh = Mesh(16, 8, 1, 2, 1, 1)
    with_table = stage_params(table, stages[0], mesh, LENGTH).dense
    without = stage_params(Model("toy", 1024, 32_000, (LATENT,) * 8), stages[0], mesh, LENGTH).dense
    assert with_table - without == LENGTH * 1024


def test_down_projections_of_latent_attention_are_whole_on_each_tensor_parallel_rank():
    one, eight = (layer_params(LATENT, 1024, Mesh(8, tp, 1, 1, 1, 1)).dense for tp in (1, 8))
    down = 1024 * (256 + 128 + 32) + 256 + 128 + 2 * 1024  # with the norms
    assert eight == pytest.approx((one - down) / 8 + down)


@each_mesh
@pytest.mark.parametrize("part", ["optimizer", "gradients", "weights"])
def test_what_is_split_is_on_one_replica(mesh, part):
    for one in params(mesh):
        state = getattr(state_bytes(one, replicas(mesh), StateTypes(1, 1, 1, main=0), FSDP), part)
        copies = one.dense * mesh.tp + one.routed * mesh.ep * mesh.etp  # one replica of each
        values = 2 if part == "optimizer" else 1
        assert state * mesh.world / mesh.pp == pytest.approx(values * copies, rel=1e-14)


@each_mesh
def test_each_sharding_splits_one_part_more(mesh):
    for one in params(mesh):
        shard = owned(one, mesh)
        states = [state_bytes(one, replicas(mesh), MIXED, sharding) for sharding in (DDP, ZERO1, ZERO2, FSDP)]
        found = [(state.weights, state.gradients, state.optimizer) for state in states]
        whole = one.total
        expected = [
            (2 * whole, 4 * whole, 12 * whole),
            (2 * whole, 4 * whole, 12 * shard),
            (2 * whole, 4 * shard, 12 * shard),
            (2 * shard, 4 * shard, 12 * shard),
        ]
        for parts, wanted in zip(found, expected, strict=True):
            assert parts == pytest.approx(wanted, rel=1e-15)
        for more, less in pairwise(map(sum, found)):
            assert less <= more
            assert less < more or mesh.dp * mesh.cp == mesh.edp == 1


@pytest.mark.parametrize(
    ("span", "dense", "routed"), [(None, (64, 1), (16, 1)), (8, (4, 16), (1, 16)), (64, (32, 2), (8, 2))]
)
def test_hybrid_sharding_splits_inside_a_domain_and_replicates_across(span, dense, routed):
    mesh = Mesh(128, 2, 1, 1, 1, 8, span)
    assert (mesh.size("dense-shard"), mesh.size("dense-replica")) == dense
    assert (mesh.size("routed-shard"), mesh.size("routed-replica")) == routed
    one = RankParams(1e9, 1e9)
    state = state_bytes(one, replicas(mesh), MIXED, SHARDINGS["hsdp"])
    assert state.weights == 2e9 / dense[0] + 2e9 / routed[0]
    assert SHARDINGS["hsdp"].inside_node
    assert not FSDP.inside_node


def test_state_of_other_number_formats():
    one, alone = RankParams(1e6, 0.0), Replicas(1, 1)

    def state(sharding=DDP, ranks=alone, **types):
        return state_bytes(one, ranks, StateTypes(**types), sharding)

    assert state(param=4, grad=4, moment=4, main=0).optimizer == 8e6  # FP32 weights are their own main weights
    assert state(param=2, grad=2, moment=4, main=4).gradients == 2e6
    assert state(param=2, grad=2, moment=2, main=2).optimizer == 6e6  # the half that BF16 weights lack, BF16 moments
    assert state(param=2, grad=2, moment=2, main=4, copies=2).weights == 4e6  # FP8 beside BF16, both orientations
    split = state(FSDP, Replicas(4, 1), param=2, grad=2, moment=2, main=4, copies=2)
    assert split.weights == 1e6


@each_sharding
def test_sharding_over_one_replica_changes_nothing(name):
    one, mesh = RankParams(3e6, 5e6), Mesh(8, 8, 1, 1, 1, 8)
    assert state_bytes(one, replicas(mesh), MIXED, SHARDINGS[name]) == state_bytes(one, replicas(mesh), MIXED, DDP)
    assert update_bytes(one, replicas(mesh), MIXED, SHARDINGS[name]) == update_bytes(one, replicas(mesh), MIXED, DDP)


def test_traffic_of_the_update():
    one, ranks = RankParams(1e6, 0.0), Replicas(8, 1)
    # clear 4 B of gradients; read them twice, read and write 12 B of state, write 2 B of weights
    assert update_bytes(one, ranks, MIXED, DDP) == pytest.approx(1e6 * (4 + 8 + 24 + 2))
    assert update_bytes(one, ranks, MIXED, ZERO1) == pytest.approx(1e6 * (4 + (8 + 24 + 2) / 8))
    assert update_bytes(one, ranks, MIXED, FSDP) == pytest.approx(1e6 * (4 + 8 + 24 + 2) / 8)
    # FP32 weights are their own main weights: read and written once
    assert update_bytes(one, ranks, StateTypes(4, 4, 4, main=0), DDP) == pytest.approx(1e6 * (4 + 8 + 24))
    # cast copies: read 2 B, write them
    assert update_bytes(one, ranks, StateTypes(2, 4, 4, main=4, copies=2), DDP) == pytest.approx(1e6 * (38 + 4))
