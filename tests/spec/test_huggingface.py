"""``config.json`` of real models (the keys that matter) becomes the spec of the same model."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from moesim.base.errors import SpecError
from moesim.cli.main import application
from moesim.spec import library
from moesim.spec.huggingface import convert, default_name, model_data, model_from_config, yaml_text
from moesim.spec.huggingface_families import FAMILIES
from moesim.spec.model import ModelSpec
from moesim.spec.validation import validate
from moesim.spec.yaml_file import parse_document
from moesim.workload.from_spec import model_from_spec
from moesim.workload.model import Model

LLAMA3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "attention_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_235B: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 12288, "head_dim": 128,
    "num_attention_heads": 64, "num_key_value_heads": 4, "num_hidden_layers": 94, "vocab_size": 151936,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 128,
    "num_key_value_heads": 128, "num_hidden_layers": 61, "vocab_size": 129280, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
    "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc",
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama3-8b": LLAMA3_8B,
    "llama2-13b": {
        "model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40,
        "num_hidden_layers": 40, "num_key_value_heads": 40, "vocab_size": 32000,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2, "sliding_window": None, "tie_word_embeddings": False,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_key_value_heads": 4, "num_hidden_layers": 28, "vocab_size": 152064, "max_window_layers": 28,
        "sliding_window": 131072, "use_sliding_window": False, "tie_word_embeddings": False,
    },
    "qwen1.5-moe-a2.7b": {
        "model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16,
        "num_key_value_heads": 16, "num_hidden_layers": 24, "vocab_size": 151936, "num_experts": 60,
        "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
        "decoder_sparse_step": 1, "max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": False,
    },
    "qwen3-8b": {
        "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36, "vocab_size": 151936,
        "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": False,
    },
    "qwen3-235b-a22b": QWEN3_235B,
    "deepseek-v3": DEEPSEEK_V3,
    "kimi-k2": DEEPSEEK_V3 | {
        "model_type": "kimi_k2", "vocab_size": 163840, "num_attention_heads": 64, "num_key_value_heads": 64,
        "n_routed_experts": 384, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0,
        "n_group": 1, "topk_group": 1,
    },
    "moonlight-16b-a3b": DEEPSEEK_V3 | {
        "hidden_size": 2048, "intermediate_size": 11264, "num_attention_heads": 16, "num_key_value_heads": 16,
        "num_hidden_layers": 27, "vocab_size": 163840, "q_lora_rank": None, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 0, "n_group": 1, "topk_group": 1,
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 36, "vocab_size": 201088,
        "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * 18, "tie_word_embeddings": False,
    },
    "nemotron-15b": {
        "model_type": "nemotron", "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 48,
        "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 256000, "hidden_act": "relu2",
    },
    "llama4-scout": {
        "model_type": "llama4", "vision_config": {}, "tie_word_embeddings": False,
        "text_config": {
            "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "head_dim": 128, "num_attention_heads": 40, "num_key_value_heads": 8,
            "num_hidden_layers": 48, "vocab_size": 202048, "num_local_experts": 16, "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1, "moe_layers": list(range(48)), "no_rope_layers": [],
            "attention_chunk_size": 8192, "use_qk_norm": True,
        },
    },
    "mpt-7b": {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
        "vocab_size": 50368, "attn_config": {"alibi": False}, "learned_pos_emb": True,
    },
}  # fmt: skip


def converted(config: dict[str, Any], name: str = "mine") -> Model:
    return model_from_spec(validate(ModelSpec, parse_document(yaml_text(convert(config, name)), "mine.yaml")))


def refusals(config: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as error:
        convert(config, "mine")
    return [str(issue) for issue in error.value.issues]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_model(name: str) -> None:
    shipped, made = model_from_spec(library.get("models", name)), converted(CONFIGS[name], name)
    if name == "moonlight-16b-a3b":  # the spec keeps the 163,842 rows of its source
        assert shipped.total_params - made.total_params == 2 * 2 * 2048
        assert made.layers == shipped.layers
        return
    assert made == shipped


def test_files_and_names(tmp_path: Path) -> None:
    folder = tmp_path / "Some Model"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA3_8B))
    assert model_from_config(path).name == "some-model"
    assert model_from_config(path, "other").summary == "other, 32 layers"
    assert model_data(path)["source"] == "huggingface-transformers"
    assert default_name({"_name_or_path": "meta-llama/Meta-Llama-3-8B"}, path) == "meta-llama-3-8b"


def test_defaults_of_the_model_types() -> None:
    assert not converted(
        {key: value for key, value in LLAMA3_8B.items() if key != "tie_word_embeddings"}
    ).tied_embeddings
    assert converted(LLAMA3_8B | {"model_type": "gemma"} | {"tie_word_embeddings": None}).tied_embeddings
    assert converted(LLAMA3_8B | {"model_type": "mistral"}).layers[0].attention.window == 4096
    assert converted(LLAMA3_8B | {"model_type": "mistral", "sliding_window": None}).layers[0].attention.window is None
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None, "vocab_size": 50257}
    assert converted(gpt2).learned_positions
    assert converted(gpt2).total_params + 1024 * 768 == pytest.approx(124.4e6, rel=1e-3)
    assert not converted(CONFIGS["mpt-7b"] | {"attn_config": {"alibi": True}}).learned_positions
    gemma3 = LLAMA3_8B | {"model_type": "gemma3_text", "sliding_window": 1024, "head_dim": 256, "num_hidden_layers": 12}
    layers = converted(gemma3).layers
    assert [layer.attention.window for layer in layers] == ([1024] * 5 + [None]) * 2
    assert (layers[0].norms, layers[0].attention.qk_norm_params) == (4, 512)
    olmo3 = converted(LLAMA3_8B | {"model_type": "olmo3", "num_hidden_layers": 8})
    assert [layer.attention.window for layer in olmo3.layers] == ([4096] * 3 + [None]) * 2


def test_interleaved_and_dense_layers() -> None:
    maverick = dict(CONFIGS["llama4-scout"]["text_config"]) | {
        "num_local_experts": 128, "interleave_moe_layer_step": 2, "moe_layers": list(range(1, 48, 2)),
    }  # fmt: skip
    layers = converted(maverick).layers
    assert [bool(layer.moe) for layer in layers] == [False, True] * 24
    assert layers[0].feed_forward.params(1) == 3 * 16384
    first = converted(QWEN3_235B | {"mlp_only_layers": [1, 0]})
    assert [bool(layer.moe) for layer in first.layers[:3]] == [False, False, True]
    listed = DEEPSEEK_V3 | {"moe_layer_freq": [0] * 3 + [1] * 58}
    assert converted(listed) == converted(DEEPSEEK_V3)
    glm = DEEPSEEK_V3 | {"model_type": "glm4_moe", "head_dim": 128, "use_qk_norm": True}
    assert converted(glm).layers[0].attention.qk_norm_params == 256


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (
            {"model_type": "mamba"},
            "config.json: model_type: 'mamba' cannot be expressed; known: " + ", ".join(sorted(FAMILIES)),
        ),
        ({}, "config.json: model_type: is missing; give the config.json of a model"),
        (
            {"model_type": "qwen3_next", "linear_num_value_heads": 32},
            "config.json: linear_num_value_heads: cannot be expressed: layers of linear attention",
        ),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"},
            "config.json: hybrid_override_pattern: cannot be expressed: layers of a state-space model",
        ),
        (
            QWEN3_235B | {"sliding_window": 8, "layer_types": ["linear_attention"] * 94},
            "config.json: layer_types: cannot be expressed: linear_attention",
        ),
        (
            QWEN3_235B | {"layer_types": ["linear_attention"] * 94},
            "config.json: layer_types: cannot be expressed: linear_attention",
        ),
        (
            QWEN3_235B | {"mlp_only_layers": [93]},
            "config.json: mlp_only_layers: cannot be expressed: dense layers that are not the first ones",
        ),
        (
            DEEPSEEK_V3 | {"moe_layer_freq": 2},
            "config.json: moe_layer_freq: cannot be expressed: routed layers other than all after the first dense ones",
        ),
        (
            CONFIGS["qwen2.5-7b"] | {"use_sliding_window": True, "max_window_layers": 20},
            "config.json: sliding_window: cannot be expressed: layers with a window that are not the first N of every M",
        ),
        (
            LLAMA3_8B | {"sliding_window": 4096},
            "config.json: sliding_window: cannot be expressed: it is not clear which layers it is meant for; layer_types would say so",
        ),
        (LLAMA3_8B | {"hidden_size": None}, "config.json: hidden_size: is missing"),
        (
            CONFIGS["mpt-7b"] | {"d_model": 4.5},
            "config.json: d_model: must be a whole number of at least one, not 4.5",
        ),
        (
            LLAMA3_8B | {"num_attention_heads": 33},
            "config.json: num_attention_heads: 33 heads do not divide a width of 4096",
        ),
        (
            LLAMA3_8B | {"attn_logit_softcapping": 50.0},
            "config.json: attn_logit_softcapping: cannot be expressed: attention scores that are capped",
        ),
    ],
)
def test_refused_with_the_key_that_prevents_it(config: dict[str, Any], line: str) -> None:
    assert refusals(config)[0] == line


def test_all_problems_at_once() -> None:
    assert len(refusals({"model_type": "llama"})) == 5


def test_files_that_are_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text, words in (("{", "not valid JSON"), ("[]", "the file is not an object")):
        Path("config.json").write_text(text)
        with pytest.raises(SpecError, match=f"config.json.*{words}"):
            model_from_config("config.json")
    with pytest.raises(SpecError, match=r"absent.json: there is no such file"):
        model_from_config("absent.json")


def test_every_family_reads_something() -> None:
    everything = {
        **DEEPSEEK_V3, "head_dim": 128, "num_local_experts": 8, "num_experts": 8, "intermediate_size_mlp": 128,
        "n_embd": 7168, "n_layer": 61, "n_head": 128, "d_model": 7168, "n_layers": 61, "n_heads": 128,
    }  # fmt: skip
    for kind in FAMILIES:
        assert converted(everything | {"model_type": kind}).total_params > 1e9


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(DEEPSEEK_V3))
    shown = CliRunner().invoke(application(["import"]), ["import", "hf", "config.json", "--name", "mine"])
    assert shown.exit_code == 0
    assert "name: mine\n" in shown.stdout
    written = CliRunner().invoke(application(["import"]), ["import", "hf", "config.json", "-o", "copy.yaml"])
    assert (written.exit_code, written.stdout) == (0, "")
    assert Path("copy.yaml").read_text() == shown.stdout.replace("mine", "copy")
    as_json = CliRunner().invoke(application(["import"]), ["import", "hf", "config.json", "--name", "mine", "--json"])
    assert json.loads(as_json.stdout)["mtp_layers"] == 1
