"""Architectures of models."""

from __future__ import annotations

from typing import Literal

from pydantic import StrictBool, model_validator

from moesim.spec.provenance import SpecModel
from moesim.spec.validation import Count, NamedSpec


class AttentionSpec(SpecModel):
    """Attention of a decoder layer. MHA is GQA with as many KV heads as heads."""

    kind: Literal["gqa"]
    num_heads: Count
    num_kv_heads: Count
    head_dim: Count
    qk_norm: StrictBool = False

    @model_validator(mode="after")
    def _heads_group(self) -> AttentionSpec:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} heads do not group over {self.num_kv_heads} KV heads; "
                f"num_kv_heads must divide {self.num_heads}"
            )
        return self


class MoeSpec(SpecModel):
    """Routed experts of a decoder layer."""

    num_experts: Count
    top_k: Count
    ffn_size: Count
    gated: StrictBool = True

    @model_validator(mode="after")
    def _enough_experts(self) -> MoeSpec:
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k {self.top_k} is more than {self.num_experts} experts; at most {self.num_experts}")
        return self


class PublishedSize(SpecModel):
    """Parameter counts as their authors print them."""

    total_params: Count
    active_params: Count | None = None
    source: str


class ModelSpec(NamedSpec):
    """A decoder-only transformer whose layers are all alike."""

    num_layers: Count
    hidden_size: Count
    vocab_size: Count
    tie_embeddings: StrictBool
    attention: AttentionSpec
    moe: MoeSpec
    published: PublishedSize | None = None
    source: str
    note: str | None = None
