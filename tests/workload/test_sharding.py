"""Parameters and training state: what each rank holds, and that nothing is lost or held twice by accident."""

from itertools import product

import pytest

from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Layer, Model, Moe
from moesim.workload.sharding import RankParams, StateTypes, owned_params, stage_params, state_bytes, update_bytes
from moesim.workload.stages import place_layers

WORLD = 512
LAYER = Layer(Attention(32, 8, 64, True), Moe(64, 4, 512, True))
MIXED = StateTypes(param=2, grad=4, moment=4)
MESHES = [
    Mesh(WORLD, tp, cp, pp, etp, ep)
    for (tp, cp), pp, ep, etp in product(((1, 1), (2, 2), (8, 1)), (1, 4), (1, 64), (1, 2))
]
each_mesh = pytest.mark.parametrize("mesh", MESHES)


def model(tied: bool = False) -> Model:
    return Model("toy", 1024, 32_000, (LAYER,) * 8, tied)


def params(mesh: Mesh, tied: bool = False) -> list[RankParams]:
    stages = place_layers(8, int(mesh.pp), "even")
    assert isinstance(stages, tuple)
    return [stage_params(model(tied), stage, mesh) for stage in stages]


@each_mesh
def test_all_ranks_hold_the_model_as_often_as_it_has_replicas(mesh):
    held = params(mesh)
    ranks = mesh.world / mesh.pp
    routed = sum(one.routed for one in held) * ranks / mesh.edp
    assert routed == pytest.approx(8 * LAYER.routed_params(1024), rel=1e-14)
    # Norms and the router are whole on each of the tp ranks; matrices, embedding and head are split over them.
    whole = 8 * (LAYER.dense_params(1024) - LAYER.attention.matrix_params(1024)) + 1024
    dense = sum(one.dense for one in held) * ranks / (mesh.dp * mesh.cp)
    assert dense - (mesh.tp - 1) * whole + routed == pytest.approx(model().stored_params, rel=1e-14)


def test_without_tensor_parallelism_a_pipeline_of_one_replica_holds_the_model_once():
    mesh = Mesh(4, 1, 1, 4, 1, 1)
    assert sum(one.total for one in params(mesh)) == model().stored_params


@pytest.mark.parametrize(("pp", "copies"), [(1, 1), (4, 2)])
def test_a_tied_embedding_is_held_by_the_first_and_by_the_last_stage(pp, copies):
    held = sum(one.total for one in params(Mesh(pp, 1, 1, pp, 1, 1), tied=True))
    assert held == model(tied=True).stored_params + (copies - 1) * model().embedding_params


@each_mesh
def test_a_distributed_optimizer_updates_each_parameter_on_one_replica(mesh):
    for one in params(mesh):
        ranks = mesh.world / mesh.pp
        copies = one.dense * mesh.tp + one.routed * mesh.ep * mesh.etp  # one replica of each
        assert owned_params(one, mesh) * ranks == pytest.approx(copies, rel=1e-14)


@each_mesh
def test_state_in_mixed_precision_is_6_and_12_bytes_a_parameter(mesh):
    for one in params(mesh):
        plain, sharded = state_bytes(one, mesh, MIXED, False), state_bytes(one, mesh, MIXED, True)
        for state in (plain, sharded):
            assert state.weights == 2 * one.total
            assert state.gradients == 4 * one.total
        assert plain.optimizer == 12 * one.total
        expected = 12 * (one.dense / (mesh.dp * mesh.cp) + one.routed / mesh.edp)
        assert sharded.optimizer == pytest.approx(expected, rel=1e-15)
        assert sharded.optimizer <= plain.optimizer


def test_main_weights_exist_beside_low_precision_weights_only():
    one, mesh = RankParams(1e6, 0.0), Mesh(8, 1, 1, 1, 1, 1)
    assert state_bytes(one, mesh, StateTypes(4, 4, 4), False).optimizer == 8e6
    assert state_bytes(one, mesh, StateTypes(2, 2, 4), False).gradients == 2e6
    assert state_bytes(one, mesh, StateTypes(2, 2, 2), False).optimizer == 8e6


def test_sharding_over_one_replica_changes_nothing():
    one, mesh = RankParams(3e6, 5e6), Mesh(8, 8, 1, 1, 1, 8)
    assert state_bytes(one, mesh, MIXED, True) == state_bytes(one, mesh, MIXED, False)
    assert update_bytes(one, mesh, MIXED, True) == update_bytes(one, mesh, MIXED, False)


def test_traffic_of_the_update():
    one, mesh = RankParams(1e6, 0.0), Mesh(8, 1, 1, 1, 1, 1)
    # clear 4 B of gradients; read them twice, read and write 12 B of state, write 2 B of weights
    assert update_bytes(one, mesh, MIXED, False) == pytest.approx(1e6 * (4 + 8 + 24 + 2))
    assert update_bytes(one, mesh, MIXED, True) == pytest.approx(1e6 * (4 + (8 + 24 + 2) / 8))
