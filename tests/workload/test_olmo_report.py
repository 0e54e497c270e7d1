"""Formulas and figures of the Olmo-core report (Ai2, October 2026) on its eight-layer model."""

import pytest

from moesim.spec import library
from moesim.workload.embedding import head_block
from moesim.workload.from_spec import model_from_spec
from moesim.workload.layers import layer_block, recomputed, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.setting import Fusion, Setting
from moesim.workload.sharding import (
    SHARDINGS,
    RankParams,
    Replicas,
    StateTypes,
    head_params,
    stage_params,
    state_bytes,
)
from moesim.workload.stages import Stage

GIB = 2**30
FP32_ADAM = StateTypes(param=2, grad=4, moment=4, main=4)
OLMO = Fusion(cross_entropy=False, logits_bytes=8.0, compiled=True, weights_in_combine=True)


@pytest.fixture(scope="module")
def model():
    return model_from_spec(library.get("models", "olmo-8l-32e"))


def setting(mesh: Mesh, sequences: float = 2) -> Setting:
    return Setting(sequences, 8192, mesh, recipes.get("bf16"), fusion=OLMO)


def test_state_of_expert_parallel_four_gpus(model) -> None:
    """Figure 9 and section 13: 6 P_local + 12 (P_E/(M_E D_E) + P_dense/D) = 62.02 GiB; measured 62.21."""
    mesh = Mesh(world=4, tp=1, cp=1, pp=1, etp=1, ep=4)
    params = stage_params(model, Stage(0, 8, embedding=True, loss=True), mesh, 8192)
    state = state_bytes(params, Replicas(4, 1), FP32_ADAM, SHARDINGS["zero1"])
    total = (state.weights + state.gradients + state.optimizer) / GIB
    assert total == pytest.approx(62.02, rel=5e-3)
    by_hand = 6 * params.total + 12 * (params.routed + params.dense / 4)
    assert total == pytest.approx(by_hand / GIB, rel=1e-12)


def test_state_under_a_sharded_optimizer() -> None:
    """6 + 12/D bytes per parameter: 12.496e9 parameters, D = 64, one expert shard: 72.0 GiB; measured 72.06."""
    state = state_bytes(RankParams(dense=12.496e9), Replicas(64, 1), FP32_ADAM, SHARDINGS["zero1"])
    assert (state.weights + state.gradients + state.optimizer) / GIB == pytest.approx(72.0, rel=5e-3)


def test_naive_state_is_18_bytes_per_parameter() -> None:
    state = state_bytes(RankParams(dense=1e9), Replicas(64, 1), FP32_ADAM, SHARDINGS["ddp"])
    assert state.weights + state.gradients + state.optimizer == 18e9


def test_saved_activations_of_a_routed_block(model) -> None:
    """Table 32: (4.5 + 2 + 5K + 3) T d x 2 B at h = d and a KV ratio of 1/4; K = 4 gives 29.5 T d."""
    run = setting(Mesh(4, 1, 1, 1, 1, 4))
    unit = 2 * run.tokens * model.hidden
    block = layer_block(model.layers[1], model.hidden, run)
    small = ("attention-logsumexp", "router-logits-and-probs", "row-probs")  # FP32 vectors that the table leaves out
    kept = sum(saved.num_bytes for saved in block.saved if saved.name not in small)
    assert kept / unit == pytest.approx(29.5, rel=1e-12)


@pytest.mark.parametrize(("chosen", "measured", "tolerance"), [((), 40.82, 0.01), (("full",), 14.69, 0.10)])
def test_activation_peak_with_and_without_recompute(model, chosen, measured, tolerance) -> None:
    """Section 13: 40.82 GiB, and 14.69 with every block recomputed; the head's logits are kept in both."""
    run = setting(Mesh(4, 1, 1, 1, 1, 4))
    policy = tuple(policies.get(name) for name in chosen)
    layers = sum(saved_bytes(recomputed(layer_block(layer, model.hidden, run), policy)) for layer in model.layers)
    total = layers + saved_bytes(head_block(model.hidden, model.vocab, run))
    assert total / GIB == pytest.approx(measured, rel=tolerance)


def test_flop_per_token_is_the_code_convention_of_the_report(model) -> None:
    """sum [6 (2 d n_h d_h + 2 d n_kv d_h) + 12 n_h d_h (S+1)/2] + 18 d ffn + [18 d (K h + h_s) + 6 d N] + 6 d V."""
    d, heads, kv, hd, sequence = 4096, 32, 8, 128, 8192
    attention = 6 * (2 * d * heads * hd + 2 * d * kv * hd) + 12 * heads * hd * (sequence + 1) / 2
    moe = 18 * d * (4 * 4096 + 4096) + 6 * d * 32
    by_hand = 8 * attention + 18 * d * 20480 + 7 * moe + 6 * d * 100352
    assert model.flop_per_token(sequence) == pytest.approx(by_hand, rel=1e-4)  # (S+1)/2 there, S/2 here


def test_parameters_split_into_always_and_experts(model) -> None:
    """Equation (2): P_total = P_always + N P_expert, P_active = P_always + K P_expert, P_expert = 3 d h per layer."""
    per_expert = 7 * 3 * 4096 * 4096
    assert model.total_params - model.active_params == (32 - 4) * per_expert
    assert head_params(model, Mesh(1, 1, 1, 1, 1, 1), own_embedding=True).dense == 100352 * 4096 + 4096
