"""The architecture in the settings of Megatron-Core, as the data of a model spec."""

from __future__ import annotations

import re
from typing import Any

from moesim.studies.imports.settings import Settings

LAYER_PATTERN = re.compile(r"[\[\]()*+,\d\s]+")


def architecture(settings: Settings) -> dict[str, Any]:
    """Fields of a model spec that the settings say; ``vocab_size`` may be missing.

    Defaults are those of Megatron-Core: two matrices a feed-forward, tied embeddings, learned positions, a head of
    hidden_size / num_attention_heads.
    """
    layers, hidden = _needed(settings, "num_layers"), _needed(settings, "hidden_size")
    heads = _needed(settings, "num_attention_heads")
    settings.problems.raise_if_any()
    gated = bool(settings.flag("swiglu")) or bool(settings.flag("gated_linear_unit"))
    untied = settings.flag("untie_embeddings_and_output_weights")
    shared = settings.flag("share_embeddings_and_output_weights")
    data: dict[str, Any] = {"num_layers": layers, "hidden_size": hidden}
    vocabulary = settings.number("padded_vocab_size") or settings.number("vocab_size")
    if vocabulary:
        data["vocab_size"] = vocabulary
    data["tie_embeddings"] = bool(shared) if shared is not None else not untied
    if settings.take("position_embedding_type") in (None, "learned_absolute") and not settings.flag(
        "no_position_embedding"
    ):
        data["learned_positions"] = True
    data["attention"] = _attention(settings, hidden, heads)
    dense_size = settings.number("ffn_hidden_size") or 4 * hidden
    experts = settings.number("num_experts") or settings.number("num_moe_experts")
    routed = _routed_layers(settings, layers) if experts else [False] * layers
    if not all(routed):
        data["ffn"] = {"size": dense_size, "gated": gated}
    if experts:
        data["moe"] = _experts(settings, int(experts), dense_size, gated, routed)
    mtp = settings.number("mtp_num_layers")
    if mtp:
        data["mtp_layers"] = mtp
    settings.problems.raise_if_any()
    return data


def _needed(settings: Settings, name: str) -> int:
    value = settings.number(name)
    if value is None and not settings.problems.issues:
        settings.refuse(name, "is missing", f"the file says nothing of the model's {name.replace('_', ' ')}; add it")
    return int(value or 0)


def _attention(settings: Settings, hidden: int, heads: int) -> dict[str, Any]:
    norms = bool(settings.flag("qk_layernorm"))
    if settings.flag("multi_latent_attention"):
        for name in ("kv_channels", "group_query_attention", "num_query_groups"):
            settings.take(name)
        found: dict[str, Any] = {"kind": "mla", "num_heads": heads}
        if rank := settings.number("q_lora_rank"):
            found["q_rank"] = rank
        found["kv_rank"] = settings.number("kv_lora_rank") or 512
        found["nope_dim"] = settings.number("qk_head_dim") or 128
        found["rope_dim"] = settings.number("qk_pos_emb_head_dim") or 64
        found["value_dim"] = settings.number("v_head_dim") or 128
        return found  # the latents are normed in any case
    width = settings.number("kv_channels") or hidden // heads
    groups = settings.number("num_query_groups")
    grouped = settings.flag("group_query_attention")
    if groups is not None and grouped is not False and groups != heads:
        found = {"kind": "gqa", "num_heads": heads, "num_kv_heads": groups, "head_dim": width}
    else:
        found = {"kind": "mha", "num_heads": heads, "head_dim": width}
    return found | ({"qk_norm": True} if norms else {})


def _routed_layers(settings: Settings, layers: int) -> list[bool]:
    """Which layers are routed: every n-th, or a list, also as the expression ``([0]*3+[1]*58)``."""
    frequency = settings.take("moe_layer_freq")
    if frequency is None:
        return [True] * layers
    if isinstance(frequency, list):
        pattern = [int(item) for item in frequency]
    elif str(frequency).isdigit():
        pattern = [int(layer % int(frequency) == 0) for layer in range(layers)]
    else:
        pattern = _expanded(str(frequency))
    if len(pattern) != layers:
        settings.refuse("moe_layer_freq", f"names {len(pattern)} layers of {layers}", "write one 0 or 1 a layer")
        return [True] * layers
    return [bool(item) for item in pattern]


def _expanded(text: str) -> list[int]:
    """Lists of whole numbers, repeated and joined."""
    if not LAYER_PATTERN.fullmatch(text):
        return []
    found: list[int] = []
    for term in text.replace(" ", "").replace("(", "").replace(")", "").split("+"):
        body, _, times = term.partition("*")
        found += [int(item) for item in body.strip("[]").split(",") if item] * int(times or 1)
    return found


def _experts(settings: Settings, experts: int, dense: int, gated: bool, routed: list[bool]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_experts": experts,
        "top_k": settings.number("moe_router_topk") or 2,
        "ffn_size": settings.number("moe_ffn_hidden_size") or dense,
        "gated": gated,
    }
    if shared := settings.number("moe_shared_expert_intermediate_size"):
        found |= {"num_shared_experts": max(1, round(shared / found["ffn_size"])), "shared_ffn_size": shared}
    groups, limit = settings.number("moe_router_num_groups"), settings.number("moe_router_group_topk")
    if groups and limit and groups > limit:
        found |= {"expert_groups": groups, "groups_per_token": limit}
    first = routed.index(True) if any(routed) else 0
    places = [layer for layer, is_routed in enumerate(routed) if is_routed]
    every = places[1] - places[0] if len(places) > 1 else 1
    expected = [layer for layer in range(first, len(routed)) if (layer + 1) % every == 0]
    if places != expected:
        settings.refuse("moe_layer_freq", "is no pattern of a model spec", "dense layers first, then every n-th routed")
    dense_before = first if every == 1 else 0
    return found | ({"first_k_dense": dense_before} if dense_before else {}) | ({"every": every} if every > 1 else {})
