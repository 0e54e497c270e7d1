"""Matrices of a layer, one by one, add up to its parameters."""

import pytest

from moesim.spec import library
from moesim.workload.from_spec import model_from_spec
from moesim.workload.matrices import Matrix, layer_matrices, stage_matrices, vector_params
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, Layer, Model
from moesim.workload.sharding import stage_params
from moesim.workload.stages import place_layers

GPT3 = Layer(Attention(96, 96, 128), Dense(4 * 12288, gated=False))


def test_a_gpt_3_layer_has_four_attention_matrices_and_two_of_the_feed_forward():
    matrices = layer_matrices(GPT3, 12288)
    assert matrices == (
        Matrix("qkv", 12288, 12288),
        Matrix("qkv", 12288, 12288, 2),
        Matrix("projection", 12288, 12288, split="rows"),
        Matrix("mlp-up", 12288, 49152),
        Matrix("mlp-down", 49152, 12288, split="rows"),
    )
    assert sum(matrix.params for matrix in matrices) == 12 * 12288**2
    assert vector_params(GPT3, 12288) == 2 * 12288


@pytest.mark.parametrize("name", library.names("models"))
def test_what_is_in_no_matrix_are_the_norms(name):
    model = model_from_spec(library.get("models", name))
    for layer in set(model.layers):
        gains = layer.norms * model.hidden + layer.attention.qk_norm_params
        latent = getattr(layer.attention, "kv_rank", 0) + (getattr(layer.attention, "q_rank", 0) or 0)
        assert vector_params(layer, model.hidden) == gains + latent


def test_the_plain_parameters_of_a_stage_are_what_its_matrices_leave():
    layer = Layer(Attention(16, 4, 128), Dense(6144))
    model = Model("dense", 2048, 32000, (layer,) * 4, mtp_layers=1)
    stages = place_layers(4, 2, "even", mtp=1)
    assert isinstance(stages, tuple)
    for stage in stages:
        params = stage_params(model, stage, Mesh(8, 1, 1, 2, 1, 1), 1024)
        found = sum(matrix.params * layers for matrix, layers in stage_matrices(model, stage).items())
        assert params.dense - params.plain == found
        assert params.plain > 32000 * 2048
