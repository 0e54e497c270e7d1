"""Models: their schema, the layers it stands for, and the names that are refused."""

import shutil
from pathlib import Path

import pytest

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.check import check
from moesim.spec.load import load_scenario, load_specs
from moesim.spec.model import ModelSpec, in_share
from moesim.spec.refused import refusal, refused
from moesim.spec.validation import validate
from moesim.spec.yaml_file import parse_document
from moesim.workload.from_spec import model_from_spec
from moesim.workload.model import Attention, Dense, LatentAttention, Moe

SMALL = """\
schema: 1
name: small
num_layers: 8
hidden_size: 64
vocab_size: 1000
tie_embeddings: false
attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 16}
ffn: {size: 256}
moe: {num_experts: 16, top_k: 2, ffn_size: 32, first_k_dense: 2}
source: none
"""


def spec(*changes: tuple[str, str]) -> ModelSpec:
    text = SMALL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return validate(ModelSpec, parse_document(text, "small.yaml"))


def problem(*changes: tuple[str, str]) -> str:
    with pytest.raises(SpecError) as error:
        spec(*changes)
    return str(error.value)


def test_leading_dense_layers() -> None:
    layers = model_from_spec(spec()).layers
    assert [type(layer.feed_forward) for layer in layers] == [Dense] * 2 + [Moe] * 6
    assert layers[2] is layers[7]


def test_every_second_layer_routed() -> None:
    layers = model_from_spec(spec(("first_k_dense: 2", "every: 2"))).layers
    assert [bool(layer.moe) for layer in layers] == [False, True] * 4


def test_shared_experts_norms_and_positions() -> None:
    shared = spec(
        ("first_k_dense: 2", "num_shared_experts: 2, shared_ffn_size: 48, first_k_dense: 1"),
        ("tie_embeddings: false", "tie_embeddings: true\nnorms: 4\nlearned_positions: true\nmtp_layers: 1"),
    )
    model = model_from_spec(shared)
    assert model.moe == Moe(16, 2, 32, gated=True, shared_size=48)
    assert (model.layers[0].norms, model.head_params, model.position_params(100)) == (4, 0, 6400)
    assert model.mtp_params == model.layers[-1].params(64) + 2 * 64**2 + 3 * 64


def test_windows_and_chunks() -> None:
    attention = "head_dim: 16, window: 128, window_layers: 1 of 2, chunk: 512, chunk_layers: 3 of 4}"
    layers = model_from_spec(spec(("head_dim: 16}", attention))).layers
    assert [layer.attention.window for layer in layers] == [128, None] * 4
    assert [layer.attention.chunk for layer in layers] == [512, 512, 512, None] * 2
    everywhere = model_from_spec(spec(("head_dim: 16}", "head_dim: 16, window: 128}")))
    assert {layer.attention.window for layer in everywhere.layers} == {128}


def test_in_share() -> None:
    assert [in_share("5 of 6", layer) for layer in range(7)] == [True] * 5 + [False, True]
    assert in_share(None, 3)


def test_latent_attention() -> None:
    mla = "attention: {kind: mla, num_heads: 8, kv_rank: 32, nope_dim: 16, rope_dim: 8, value_dim: 16"
    old = "attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 16"
    assert model_from_spec(spec((old, mla))).layers[0].attention == LatentAttention(8, 32, 16, 8, 16)
    assert model_from_spec(spec((old, mla + ", q_rank: 48"))).layers[0].attention.q_rank == 48


def test_mha_needs_no_kv_heads() -> None:
    mha = spec(("kind: gqa, num_heads: 8, num_kv_heads: 2", "kind: mha, num_heads: 8"))
    assert model_from_spec(mha).layers[0].attention == Attention(8, 8, 16)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("num_kv_heads: 2, ", "", "small.yaml:7: attention: gqa has no num_kv_heads; add num_kv_heads: ..."),
        ("num_kv_heads: 2", "num_kv_heads: 3", "small.yaml:7: attention: 8 heads do not group over 3 KV heads; num_kv_heads must divide 8"),
        ("kind: gqa", "kind: mha", "small.yaml:7: attention: 8 heads over 2 KV heads are not mha; write kind: gqa"),
        ("kind: gqa", "kind: mqa", "small.yaml:7: attention.kind: 'mqa' is not allowed; write 'mha', 'gqa' or 'mla'"),
        ("head_dim: 16", "head_dim: 16, kv_rank: 8", "small.yaml:7: attention: gqa takes no kv_rank; remove it"),
        ("head_dim: 16", "head_dim: 16, window_layers: 1 of 2", "small.yaml:7: attention: window_layers without a window; add window: how many tokens"),
        ("head_dim: 16", "head_dim: 16, window: 8, window_layers: 1/2", "small.yaml:7: attention.window_layers: '1/2' is not N of M; write for example '3 of 4', the first three of every four layers"),
        ("ffn: {size: 256}\n", "", "small.yaml:1: 2 layers are dense but there is no ffn; add ffn: {size: ...}"),
        ("first_k_dense: 2", "first_k_dense: 0", "small.yaml:1: every layer is routed, so no layer has the ffn; remove it, or set moe.first_k_dense"),
        ("first_k_dense: 2", "first_k_dense: 8", "small.yaml:1: no layer of 8 is routed; lower moe.first_k_dense 8 or moe.every 1"),
        ("first_k_dense: 2", "num_shared_experts: 1", "small.yaml:9: moe: 1 shared experts of size 0 in all; give num_shared_experts and shared_ffn_size, or neither"),
        ("first_k_dense: 2", "expert_groups: 4", "small.yaml:9: moe: expert_groups 4 and groups_per_token None go together; give both, or neither"),
        ("first_k_dense: 2", "expert_groups: 5, groups_per_token: 2", "small.yaml:9: moe: expert_groups 5 does not divide 16 experts"),
        ("first_k_dense: 2", "expert_groups: 16, groups_per_token: 1", "small.yaml:9: moe: groups_per_token 1 of 16 groups: at most all, and enough for top_k 2"),
        ("top_k: 2", "top_k: 17", "small.yaml:9: moe: top_k 17 is more than 16 experts; at most 16"),
        ("moe: {num_experts: 16, top_k: 2, ffn_size: 32, first_k_dense: 2}", "norms: 3", "small.yaml:9: norms: 3 is not allowed; write 2 or 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together(old: str, new: str, line: str) -> None:
    assert problem((old, new)) == line


def test_neither_feed_forward() -> None:
    moe = "moe: {num_experts: 16, top_k: 2, ffn_size: 32, first_k_dense: 2}\n"
    assert "there is neither ffn nor moe" in problem(("ffn: {size: 256}\n", ""), (moe, ""))


def test_every_shipped_model_says_what_was_checked() -> None:
    names = library.names("models")
    assert len(names) == 84
    for name in names:
        model = library.get("models", name)
        assert model.note
        assert model.published is None or model.published.source


@pytest.mark.parametrize(
    "name",
    ["qwen3-235b", "DeepSeekV3", "GPT OSS 120B", "LLAMA3.1_405B", "LLAMA3_70B", "LLAMA3_8B", "Qwen3_30B_a3B", "Qwen3_235B_a22B"],
)  # fmt: skip
def test_printed_labels_are_aliases(name: str) -> None:
    assert isinstance(library.get("models", name), ModelSpec)


def test_refused_names_say_why(small: Path) -> None:
    with pytest.raises(SpecError) as error:
        library.get("models", "qwen3-next-80b-a3b")
    assert str(error.value) == "qwen3-next-80b-a3b cannot be expressed: hybrid-gated-delta-net"
    small.write_text(small.read_text().replace("qwen3-235b-a22b", "Nemotron_3_Nano"))
    with pytest.raises(SpecError) as error:
        load_specs(load_scenario(small))
    assert str(error.value.issues[0]) == "small.yaml:3: model: Nemotron_3_Nano cannot be expressed: hybrid-mamba"


def test_refused_gpus_are_refused_as_nodes_too(small: Path) -> None:
    with pytest.raises(SpecError, match="MI300X is not modelled: an AMD GPU"):
        library.get("gpus", "MI300X")
    small.write_text(small.read_text().replace("hgx-h100", "mi300x"))
    with pytest.raises(SpecError, match=r"small.yaml:4: cluster.node: mi300x is not modelled: an AMD GPU"):
        load_specs(load_scenario(small))


def test_what_is_refused_is_not_answered() -> None:
    reasons = refused(library.root())
    assert len(reasons.models) >= 6
    for kind in ("models", "gpus"):
        for name in reasons.of(kind):
            assert refusal(library.root(), kind, name)
            assert name not in library.names(kind)
    assert refusal(library.root(), "software", "mi300x") is None


def test_the_check_finds_a_refused_name_that_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("hardware_specs", "scenarios"):
        shutil.copytree(library.root() / folder, tmp_path / folder)
    path = tmp_path / "hardware_specs" / "refused.yaml"
    path.write_text(path.read_text().replace("models:", "models:\n  deepseekv3: old\n  Mixed-Case: old"))
    monkeypatch.setattr(library, "root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    found = [str(issue) for issue in check()]
    assert "hardware_specs/refused.yaml:4: models.deepseekv3: is also a name of deepseek-v3" in found
    assert "hardware_specs/refused.yaml:5: models.Mixed-Case: never matches; write 'mixed-case'" in found


def test_no_list_of_refused_names_refuses_nothing(tmp_path: Path) -> None:
    assert refusal(tmp_path, "models", "qwen3-next-80b-a3b") is None
