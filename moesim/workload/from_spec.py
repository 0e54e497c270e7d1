"""From the spec of a model to its layers."""

from __future__ import annotations

from typing import TypeVar

from moesim.spec.model import AttentionSpec, ModelSpec, in_share
from moesim.spec.scenario import DocumentsSpec
from moesim.workload.documents import Documents
from moesim.workload.model import Attention, Dense, LatentAttention, Layer, Model, Moe


def model_from_spec(spec: ModelSpec) -> Model:
    """Return the layer list that a model spec describes; layers that are alike are one object."""
    kinds: dict[Layer, Layer] = {}
    layers = (Layer(_attention(spec.attention, i), _feed_forward(spec, i), spec.norms) for i in range(spec.num_layers))
    return Model(
        spec.name,
        spec.hidden_size,
        spec.vocab_size,
        tuple(kinds.setdefault(layer, layer) for layer in layers),
        tied_embeddings=spec.tie_embeddings,
        learned_positions=spec.learned_positions,
        mtp_layers=spec.mtp_layers,
    )


def documents_from_spec(spec: DocumentsSpec) -> Documents:
    """Return the lengths of documents that a scenario describes."""
    if spec.histogram is None:
        return Documents(_given(spec.mean), spec.cv or 0.0)
    total = sum(spec.histogram.values())
    points = tuple((float(length), count / total) for length, count in sorted(spec.histogram.items()))
    return Documents(sum(length * share for length, share in points), 0.0, points)


def _attention(spec: AttentionSpec, layer: int) -> Attention | LatentAttention:
    window = spec.window if in_share(spec.window_layers, layer) else None
    chunk = spec.chunk if in_share(spec.chunk_layers, layer) else None
    if spec.kind == "mla":
        return LatentAttention(
            spec.num_heads,
            _given(spec.kv_rank),
            _given(spec.nope_dim),
            _given(spec.rope_dim),
            _given(spec.value_dim),
            spec.q_rank,
            window,
            chunk,
        )
    return Attention(spec.num_heads, spec.key_value_heads, _given(spec.head_dim), spec.qk_norm, window, chunk)


def _feed_forward(spec: ModelSpec, layer: int) -> Dense | Moe:
    moe, ffn = spec.moe, spec.ffn
    if moe is not None and moe.routes(layer):
        groups = moe.expert_groups, moe.groups_per_token or 1
        return Moe(moe.num_experts, moe.top_k, moe.ffn_size, moe.gated, moe.shared_ffn_size, *groups, moe.bias)
    assert ffn is not None, "the spec checks that dense layers have a feed-forward"
    return Dense(ffn.size, ffn.gated)


T = TypeVar("T")


def _given(value: T | None) -> T:
    assert value is not None, "the spec checks that its kind has the field"
    return value
