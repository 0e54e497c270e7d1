"""How the ``config.json`` of each model type of transformers is read: a table, without logic of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LayerRule = Callable[[Mapping[str, Any], int], list[bool]]
"""From a config and a number of layers to the layers that have a window or chunk."""


@dataclass(frozen=True)
class MoeKeys:
    """Keys of the experts.

    How many, their size, the size of the shared experts or their number, the dense size, and groups that routes stay in.
    ``biased``: their products add a bias.
    """

    experts: str
    size: str
    top_k: str = "num_experts_per_tok"
    shared_size: str = ""
    shared_experts: str = ""
    dense: str = "intermediate_size"
    groups: str = ""
    biased: bool = False


@dataclass(frozen=True)
class Family:
    """What a model type implies that its ``config.json`` does not say.

    Attributes
    ----------
    names
        Their name of a key, where it is not the usual one.
    defaults
        Values of keys that are left out.
    tied
        Whether embeddings are tied where ``tie_word_embeddings`` is left out.
    qk_norm, qk_norm_key
        Whether heads norm queries and keys, or the key that says so.
    biased
        Whether projections have biases.
    window, chunk
        The layers with ``sliding_window`` or ``attention_chunk_size`` where ``layer_types`` is left out.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    tied: bool = False
    gated: bool = True
    norms: int = 2
    learned_positions: bool = False
    latent: bool = False
    qk_norm: bool = False
    qk_norm_key: str = ""
    biased: bool = False
    moe: MoeKeys | None = None
    window: LayerRule | None = None
    chunk: LayerRule | None = None


def _all(_config: Mapping[str, Any], num_layers: int) -> list[bool]:
    return [True] * num_layers


def _late(config: Mapping[str, Any], num_layers: int) -> list[bool]:
    return [layer >= config.get("max_window_layers", 28) for layer in range(num_layers)]


def _all_but_every(key: str, default: int) -> LayerRule:
    def rule(config: Mapping[str, Any], num_layers: int) -> list[bool]:
        period = config.get(key) or default
        return [(layer + 1) % period != 0 for layer in range(num_layers)]

    return rule


def _rotary(config: Mapping[str, Any], num_layers: int) -> list[bool]:
    given = config.get("no_rope_layers")  # 1 where a layer has rotary positions
    return list(map(bool, given)) if given else _all_but_every("no_rope_layer_interval", 4)(config, num_layers)


_DEEPSEEK = Family(
    latent=True,
    defaults={"first_k_dense_replace": 0},
    moe=MoeKeys("n_routed_experts", "moe_intermediate_size", shared_experts="n_shared_experts", groups="n_group"),
)
_QWEN2 = Family(defaults={"use_sliding_window": False}, biased=True, window=_late)
_OLMO2 = Family(qk_norm=True)

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(defaults={"num_key_value_heads": 8, "sliding_window": 4096}, window=_all),
    "mixtral": Family(
        defaults={"num_key_value_heads": 8}, window=_all, moe=MoeKeys("num_local_experts", "intermediate_size")
    ),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(
        _QWEN2,
        window=None,
        moe=MoeKeys("num_experts", "moe_intermediate_size", shared_size="shared_expert_intermediate_size"),
    ),
    "qwen3": Family(defaults={"head_dim": 128, "use_sliding_window": False}, qk_norm=True, window=_late),
    "qwen3_moe": Family(
        defaults={"num_key_value_heads": 4, "use_sliding_window": False},
        qk_norm=True,
        window=_all,
        moe=MoeKeys("num_experts", "moe_intermediate_size"),
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": replace(_DEEPSEEK, latent=False, qk_norm_key="use_qk_norm"),
    "gpt_oss": Family(
        defaults={"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
        biased=True,
        window=_all_but_every("", 2),
        moe=MoeKeys("num_local_experts", "intermediate_size", biased=True),
    ),
    "gpt2": Family(
        names={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
        },
        defaults={"expansion_ratio": 4},
        tied=True,
        gated=False,
        learned_positions=True,
        biased=True,
    ),
    "mpt": Family(
        names={"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
        defaults={"expansion_ratio": 4, "attn_config": {"alibi": True}},
        tied=True,
        gated=False,
        learned_positions=True,
    ),
    "gemma": Family(tied=True),
    "gemma3_text": Family(
        defaults={"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096},
        tied=True,
        norms=4,
        qk_norm=True,
        window=_all_but_every("sliding_window_pattern", 6),
    ),
    "nemotron": Family(gated=False),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, defaults={"sliding_window": 4096}, window=_all_but_every("", 4)),
    "olmoe": replace(_OLMO2, moe=MoeKeys("num_experts", "intermediate_size")),
    "llama4_text": Family(
        defaults={"head_dim": 128, "num_key_value_heads": 8, "attention_chunk_size": 8192, "use_qk_norm": True},
        qk_norm_key="use_qk_norm",
        chunk=_rotary,
        moe=MoeKeys(
            "num_local_experts", "intermediate_size", shared_size="intermediate_size", dense="intermediate_size_mlp"
        ),
    ),
}
"""Every model type that can be read."""

_LINEAR = "layers of linear attention"
_STATE_SPACE = "layers of a state-space model"

REFUSED_KEYS: dict[str, str] = {
    "hybrid_override_pattern": _STATE_SPACE,
    "layers_block_type": _STATE_SPACE,
    "mamba_d_state": _STATE_SPACE,
    "mamba_num_heads": _STATE_SPACE,
    "ssm_state_size": _STATE_SPACE,
    "ssm_cfg": _STATE_SPACE,
    "linear_num_value_heads": _LINEAR,
    "linear_attn_config": _LINEAR,
    "attn_type_list": _LINEAR,
    "index_topk": "sparse attention over the keys that an indexer picks",
    "moe_latent_size": "experts on a latent of the hidden state",
    "num_kv_shared_layers": "keys and values shared between layers",
    "attn_logit_softcapping": "attention scores that are capped",
    "final_logit_softcapping": "logits that are capped",
    "is_encoder_decoder": "an encoder beside the decoder",
}
"""Keys that no layer list can say, with what they stand for."""
