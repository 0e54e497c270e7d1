"""Parameters and model FLOPs, counted matrix by matrix."""

import pytest

from moesim.problem import Problem
from moesim.workload.model import Attention, Layer, Model, Moe

HIDDEN, VOCAB, LENGTH = 64, 1000, 128


def toy(gated: bool = True, tied: bool = False, qk_norm: bool = True, num_layers: int = 3) -> Model:
    layer = Layer(Attention(8, 2, 16, qk_norm), Moe(16, 4, 48, gated))
    return Model("toy", HIDDEN, VOCAB, (layer,) * num_layers, tied)


def test_qwen3_235b_counts_are_the_published_ones(qwen: Problem):
    assert qwen.model.total_params == 235_093_610_496
    assert qwen.model.active_params == 22_190_739_456
    assert qwen.model.stored_params == 235_093_610_496 + 94 * 2 * 128


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_stored_params_matrix_by_matrix(gated, tied, qk_norm):
    query = [HIDDEN * 8 * 16]
    key_value = [HIDDEN * 2 * 16] * 2
    projection = [8 * 16 * HIDDEN]
    norms = [HIDDEN, HIDDEN, *([16, 16] if qk_norm else [])]
    router = [HIDDEN * 16]
    experts = [HIDDEN * 48] * ((3 if gated else 2) * 16)
    layer = sum(query + key_value + projection + norms + router + experts)
    ends = VOCAB * HIDDEN * (1 if tied else 2) + HIDDEN
    assert toy(gated, tied, qk_norm).stored_params == 3 * layer + ends


def test_active_params_leave_out_the_experts_not_chosen():
    model = toy()
    one_expert = 3 * HIDDEN * 48
    assert model.total_params - model.active_params == 3 * (16 - 4) * one_expert


@pytest.mark.parametrize(("convention", "keys"), [("causal", LENGTH / 2), ("full", LENGTH)])
def test_flop_of_a_token_matrix_by_matrix(convention, keys):
    attention = 2 * HIDDEN * (8 + 2 + 2) * 16 + 2 * 8 * 16 * HIDDEN + 2 * keys * 8 * (16 + 16)
    router = 2 * HIDDEN * 16
    experts = 4 * 3 * 2 * HIDDEN * 48
    head = 2 * HIDDEN * VOCAB
    expected = 3 * (3 * (attention + router + experts) + head)
    assert toy().flop_per_token(LENGTH, convention) == pytest.approx(expected, rel=1e-15)


def test_a_longer_sequence_costs_only_its_attention():
    model = toy()
    longer = model.flop_per_token(2 * LENGTH) - model.flop_per_token(LENGTH)
    assert longer == pytest.approx(3 * 3 * 2 * (LENGTH / 2) * 8 * 32)
    assert model.flop_per_token(LENGTH, "full") == pytest.approx(model.flop_per_token(2 * LENGTH, "causal"))
