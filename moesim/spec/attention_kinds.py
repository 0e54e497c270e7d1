"""Another attention in the place of a model's own: what a scenario's ``attention`` says."""

from __future__ import annotations

import re

from moesim.spec.model import AttentionSpec, ModelSpec

LATENT = {"kv_rank": 512, "rope_dim": 64}
"""Widths of latent attention that its models share: DeepSeek-V2, DeepSeek-V3, Kimi K2 (deepseek-v3-report)."""
QUERY_RANK = 1536
"""Width of the latent of the queries unless said (deepseek-v3-report)."""
EXAMPLES = "gqa:8, mha, mla:qk192 or mla:qk192:q2048"
_KINDS = re.compile(r"(mha)|gqa:(\d+)|mla:qk(\d+)(?::q(\d+))?")


def with_attention(model: ModelSpec, text: str) -> ModelSpec:
    """Return a model with another kind of attention, everything else unchanged, windows too.

    Parameters
    ----------
    text
        ``mha``; ``gqa:N`` with N heads of keys and values; ``mla:qkN`` with N channels in a query or key, 64 of which carry
        the position, values as wide as a head is now, and a latent of 512; ``:qR`` sets the latent of the queries.

    Raises
    ------
    ValueError
        Where the text names no attention.

    Examples
    --------
    >>> from moesim.spec import library
    >>> latent = with_attention(library.get("models", "qwen3-30b-a3b"), "mla:qk192").attention
    >>> latent.kind, latent.nope_dim, latent.rope_dim, latent.value_dim, latent.num_heads
    ('mla', 128, 64, 128, 32)
    """
    found = _KINDS.fullmatch(text.strip())
    if found is None:
        if text.strip().startswith("linear"):
            raise ValueError(f"linear attention is not modelled, neither its kernels nor its state; write {EXAMPLES}")
        raise ValueError(f"'{text}' is no attention; write {EXAMPLES}")
    plain, groups, width, rank = found.groups()
    own = model.attention
    head = own.head_dim or own.value_dim
    kept = {name: getattr(own, name) for name in ("num_heads", "window", "window_layers", "chunk", "chunk_layers")}
    told: dict[str, object]
    if plain:
        told = {"kind": "mha", "head_dim": head, "qk_norm": own.qk_norm}
    elif groups:
        told = {"kind": "gqa", "num_kv_heads": int(groups), "head_dim": head, "qk_norm": own.qk_norm}
    else:
        if int(width) <= LATENT["rope_dim"]:
            raise ValueError(
                f"'{text}' has {width} channels in a query; more than the {LATENT['rope_dim']} of the position"
            )
        told = {
            "kind": "mla",
            "nope_dim": int(width) - LATENT["rope_dim"],
            "value_dim": head,
            "q_rank": int(rank or QUERY_RANK),
            **LATENT,
        }
    attention = AttentionSpec.model_validate(kept | told)
    return model.model_copy(update={"attention": attention, "published": None})
