"""Architectures of models."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt, model_validator

from moesim.spec.provenance import SpecModel
from moesim.spec.validation import Count, NamedSpec

_SHARE = re.compile(r"([1-9]\d*) of ([1-9]\d*)")


def in_share(share: str | None, layer: int) -> bool:
    """Whether ``N of M``, the first N of every M layers, holds for a layer; without a share it holds for all.

    Examples
    --------
    >>> [in_share("3 of 4", layer) for layer in range(6)]
    [True, True, True, False, True, True]
    """
    if share is None:
        return True
    first, period = map(int, share.split(" of "))
    return layer % period < first


def _share(text: str) -> str:
    match = _SHARE.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError(f"'{text}' is not N of M; write for example '3 of 4', the first three of every four layers")
    return text


Share = Annotated[str, AfterValidator(_share)]
"""The first N of every M layers, written ``N of M``."""

_FIELDS_OF_KIND = {
    "mha": (("head_dim",), ("num_kv_heads", "qk_norm")),
    "gqa": (("num_kv_heads", "head_dim"), ("qk_norm",)),
    "mla": (("kv_rank", "nope_dim", "rope_dim", "value_dim"), ("q_rank",)),
}
"""Fields that a kind of attention needs, and those that it may have besides."""


class AttentionSpec(SpecModel):
    """Attention of a decoder layer.

    Parameters
    ----------
    kind
        ``mha``, ``gqa`` (queries share keys and values in groups) or ``mla`` (keys and values from a latent).
    num_heads, num_kv_heads, head_dim
        Query heads, heads of keys and values, width of a head. [-]
    qk_norm
        Whether each head norms its queries and keys.
    window, window_layers
        Keys that a query sees at most, and the layers for which that holds; all of them unless said. [-]
    chunk, chunk_layers
        Tokens of a block that attention does not leave, and the layers for which that holds. [-]
    q_rank, kv_rank
        Width of the latents of MLA; without ``q_rank`` queries come straight from the hidden state. [-]
    nope_dim, rope_dim, value_dim
        Widths of an MLA head: without and with rotary position, and of its values. [-]
    """

    kind: Literal["mha", "gqa", "mla"]
    num_heads: Count
    num_kv_heads: Count | None = None
    head_dim: Count | None = None
    qk_norm: StrictBool = False
    window: Count | None = None
    window_layers: Share | None = None
    chunk: Count | None = None
    chunk_layers: Share | None = None
    q_rank: Count | None = None
    kv_rank: Count | None = None
    nope_dim: Count | None = None
    rope_dim: Count | None = None
    value_dim: Count | None = None

    @model_validator(mode="after")
    def _fields_of_the_kind(self) -> AttentionSpec:
        needed, allowed = _FIELDS_OF_KIND[self.kind]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"{self.kind} has no {', '.join(missing)}; add {' and '.join(f'{m}: ...' for m in missing)}"
            )
        of_kinds = {name for names in _FIELDS_OF_KIND.values() for group in names for name in group}
        extra = sorted(name for name in of_kinds - {*needed, *allowed} if getattr(self, name))
        if extra:
            raise ValueError(f"{self.kind} takes no {', '.join(extra)}; remove {'it' if len(extra) == 1 else 'them'}")
        return self

    @model_validator(mode="after")
    def _heads_group(self) -> AttentionSpec:
        if self.num_heads % self.key_value_heads:
            raise ValueError(
                f"{self.num_heads} heads do not group over {self.num_kv_heads} KV heads; "
                f"num_kv_heads must divide {self.num_heads}"
            )
        if self.kind == "mha" and self.key_value_heads != self.num_heads:
            raise ValueError(f"{self.num_heads} heads over {self.num_kv_heads} KV heads are not mha; write kind: gqa")
        return self

    @model_validator(mode="after")
    def _shares_say_of_what(self) -> AttentionSpec:
        for name in ("window", "chunk"):
            if getattr(self, f"{name}_layers") and not getattr(self, name):
                raise ValueError(f"{name}_layers without a {name}; add {name}: how many tokens")
        return self

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values, as many as heads unless said. [-]"""
        return self.num_kv_heads or self.num_heads


class FeedForwardSpec(SpecModel):
    """Feed-forward of a dense layer; gated (SwiGLU, GeGLU: three matrices) or plain (two)."""

    size: Count
    gated: StrictBool = True


class MoeSpec(SpecModel):
    """Routed experts of a decoder layer, and the shared experts beside them.

    ``bias``: products of the experts add a bias. ``shared_ffn_size`` is that of all shared experts together. The first ``first_k_dense`` layers are dense;
    after them every ``every``-th layer is routed: layers i with (i + 1) % every == 0. A router that first chooses
    ``groups_per_token`` of ``expert_groups`` equal groups, and experts in those alone, reaches fewer ranks.
    """

    num_experts: Count
    top_k: Count
    ffn_size: Count
    gated: StrictBool = True
    bias: StrictBool = False
    num_shared_experts: Annotated[StrictInt, Field(ge=0)] = 0
    shared_ffn_size: Annotated[StrictInt, Field(ge=0)] = 0
    first_k_dense: Annotated[StrictInt, Field(ge=0)] = 0
    every: Count = 1
    expert_groups: Count = 1
    groups_per_token: Count | None = None

    @model_validator(mode="after")
    def _whole_groups(self) -> MoeSpec:
        groups, chosen = self.expert_groups, self.groups_per_token
        if (groups == 1) != (chosen is None):
            raise ValueError(f"expert_groups {groups} and groups_per_token {chosen} go together; give both, or neither")
        if self.num_experts % groups:
            raise ValueError(f"expert_groups {groups} does not divide {self.num_experts} experts")
        if chosen is not None and not self.top_k * groups <= chosen * self.num_experts <= groups * self.num_experts:
            told = f"groups_per_token {chosen} of {groups} groups"
            raise ValueError(f"{told}: at most all, and enough for top_k {self.top_k}")
        return self

    @model_validator(mode="after")
    def _enough_experts(self) -> MoeSpec:
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k {self.top_k} is more than {self.num_experts} experts; at most {self.num_experts}")
        if bool(self.num_shared_experts) != bool(self.shared_ffn_size):
            raise ValueError(
                f"{self.num_shared_experts} shared experts of size {self.shared_ffn_size} in all; "
                "give num_shared_experts and shared_ffn_size, or neither"
            )
        return self

    def routes(self, layer: int) -> bool:
        """Whether a layer is routed."""
        return layer >= self.first_k_dense and (layer + 1) % self.every == 0


class PublishedSize(SpecModel):
    """Parameter counts as their authors print them.

    ``embeddings_counted`` says which of input embedding and LM head the printed active count includes, where one of
    the three reproduces it.
    """

    total_params: Count
    active_params: Count | None = None
    mtp_params: Count | None = None
    embeddings_counted: Literal["both", "head", "neither"] | None = None
    source: str


class ModelSpec(NamedSpec):
    """A decoder-only transformer.

    Parameters
    ----------
    ffn, moe
        Feed-forward of the dense layers, experts of the routed ones. A dense model has no ``moe``; a model whose
        layers are all routed has no ``ffn``.
    norms
        Norms of a layer over the hidden width: 2, or 4 where attention and feed-forward are normed before and after
        (peri-norm).
    mtp_layers
        Multi-token-prediction modules behind the last layer. [-]
    learned_positions
        Whether a table of learned positions is added to the embedding.
    """

    num_layers: Count
    hidden_size: Count
    vocab_size: Count
    tie_embeddings: StrictBool
    learned_positions: StrictBool = False
    norms: Literal[2, 4] = 2
    attention: AttentionSpec
    ffn: FeedForwardSpec | None = None
    moe: MoeSpec | None = None
    mtp_layers: Annotated[StrictInt, Field(ge=0)] = 0
    published: PublishedSize | None = None
    source: str
    note: str | None = None

    def routes(self, layer: int) -> bool:
        """Whether a layer is routed."""
        return self.moe is not None and self.moe.routes(layer)

    @model_validator(mode="after")
    def _every_layer_has_a_feed_forward(self) -> ModelSpec:
        routed = sum(self.routes(layer) for layer in range(self.num_layers))
        if self.ffn is None and self.moe is None:
            raise ValueError("there is neither ffn nor moe; add ffn: {size: ...}, or moe: {num_experts: ..., ...}")
        if self.moe is not None and not routed:
            raise ValueError(
                f"no layer of {self.num_layers} is routed; lower moe.first_k_dense {self.moe.first_k_dense} "
                f"or moe.every {self.moe.every}"
            )
        if self.ffn is None and routed < self.num_layers:
            raise ValueError(f"{self.num_layers - routed} layers are dense but there is no ffn; add ffn: {{size: ...}}")
        if self.ffn is not None and routed == self.num_layers:
            raise ValueError("every layer is routed, so no layer has the ffn; remove it, or set moe.first_k_dense")
        return self
