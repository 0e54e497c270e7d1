"""A model as a list of layers: shapes and parameter counts, no hardware, no parallelism.

Every layer is attention followed by a feed-forward, each behind a norm. Kinds of attention and of feed-forward are
small dataclasses; a model may mix them freely (leading dense layers, windowed layers between full ones).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

Columns = Callable[[int, int | None, int | None], float]
"""Keys that a query may see on average, by length, window and chunk."""


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention (MHA when ``num_kv_heads == num_heads``).

    ``window``: a query sees that many keys at most (sliding window). ``chunk``: attention stays inside blocks of that
    many tokens. ``None`` for neither. ``rope``: rotary positions.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    qk_norm: bool = False
    window: int | None = None
    chunk: int | None = None
    rope: bool = True

    @property
    def query_dim(self) -> int:
        """Width of one head in the product of queries and keys. [-]"""
        return self.head_dim

    @property
    def value_dim(self) -> int:
        """Width of one head's values. [-]"""
        return self.head_dim

    @property
    def qkv_size(self) -> int:
        """Width of the fused QKV projection. [-]"""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    def split_params(self, hidden: int) -> int:
        """Parameters that tensor parallelism splits: the QKV and output projections. [-]"""
        return hidden * self.qkv_size + self.num_heads * self.head_dim * hidden

    def whole_params(self, _hidden: int) -> int:
        """Parameters that every tensor-parallel rank keeps: the query and key norm gains, whatever the width. [-]"""
        return self.qk_norm_params

    @property
    def qk_norm_params(self) -> int:
        """Gains of the per-head query and key norms, one vector each. [-]"""
        return 2 * self.head_dim if self.qk_norm else 0

    def matrix_params(self, hidden: int) -> int:
        """Parameters that multiply a token. [-]"""
        return self.split_params(hidden)


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA, DeepSeek-V2).

    Keys and values come from a shared latent of ``kv_rank``; queries from a latent of ``q_rank`` or, where that is
    None, straight from the hidden state. Each head has ``nope_dim`` dimensions without and ``rope_dim`` with rotary
    position, the latter shared over heads for keys.
    """

    num_heads: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    q_rank: int | None = None
    window: int | None = None
    chunk: int | None = None

    @property
    def num_kv_heads(self) -> int:
        """Heads of the expanded keys and values. [-]"""
        return self.num_heads

    @property
    def query_dim(self) -> int:
        """Width of one head in the product of queries and keys. [-]"""
        return self.nope_dim + self.rope_dim

    def split_params(self, hidden: int) -> int:
        """Parameters that tensor parallelism splits: up-projections and output projection. [-]"""
        query = (self.q_rank or hidden) * self.num_heads * self.query_dim
        keys_values = self.kv_rank * self.num_heads * (self.nope_dim + self.value_dim)
        return query + keys_values + self.num_heads * self.value_dim * hidden

    def down_params(self, hidden: int) -> int:
        """Parameters of the down-projections, kept whole by every rank. [-]"""
        return hidden * (self.q_rank or 0) + hidden * (self.kv_rank + self.rope_dim)

    def whole_params(self, hidden: int) -> int:
        """Parameters that every tensor-parallel rank keeps: down-projections and latent norms. [-]"""
        return self.down_params(hidden) + (self.q_rank or 0) + self.kv_rank

    @property
    def qk_norm_params(self) -> int:
        """Per-head query and key norms; MLA norms its latents instead. [-]"""
        return 0

    def matrix_params(self, hidden: int) -> int:
        """Parameters that multiply a token. [-]"""
        return self.split_params(hidden) + self.down_params(hidden)


@dataclass(frozen=True)
class Dense:
    """A feed-forward that every token passes; gated (SwiGLU) or plain."""

    ffn_size: int
    gated: bool = True

    def params(self, hidden: int) -> int:
        """Parameters. [-]"""
        return (3 if self.gated else 2) * hidden * self.ffn_size


@dataclass(frozen=True)
class Moe:
    """Routed experts, chosen ``top_k`` per token, beside shared experts of ``shared_size`` in all (0 for none).

    A token chooses among the experts of ``token_groups`` of ``groups`` equal groups. ``bias``: their products add one. It costs time and next to no parameters, which are not counted.
    """

    num_experts: int
    top_k: int
    ffn_size: int
    gated: bool = True
    shared_size: int = 0
    groups: int = 1
    token_groups: int = 1
    bias: bool = False

    def expert_params(self, hidden: int) -> int:
        """Parameters of one expert. [-]"""
        return (3 if self.gated else 2) * hidden * self.ffn_size

    def shared_params(self, hidden: int) -> int:
        """Parameters of the shared experts. [-]"""
        return (3 if self.gated else 2) * hidden * self.shared_size


@dataclass(frozen=True)
class Layer:
    """One decoder layer. ``norms``: norms of the hidden width (2 before the blocks; 4 where also behind them)."""

    attention: Attention | LatentAttention
    feed_forward: Dense | Moe
    norms: int = 2

    @property
    def moe(self) -> Moe | None:
        """The routed experts, or None in a dense layer."""
        return self.feed_forward if isinstance(self.feed_forward, Moe) else None

    def split_params(self, hidden: int) -> int:
        """Parameters outside the routed experts that tensor parallelism splits. [-]"""
        feed = self.feed_forward
        dense = feed.shared_params(hidden) if isinstance(feed, Moe) else feed.params(hidden)
        return self.attention.split_params(hidden) + dense

    def whole_params(self, hidden: int) -> int:
        """Parameters outside the routed experts that every rank keeps: norms, router, latent projections. [-]"""
        router = hidden * self.moe.num_experts if self.moe else 0
        return self.norms * hidden + router + self.attention.whole_params(hidden)

    def routed_params(self, hidden: int) -> int:
        """Parameters of all routed experts. [-]"""
        return self.moe.num_experts * self.moe.expert_params(hidden) if self.moe else 0

    def params(self, hidden: int) -> int:
        """All parameters. [-]"""
        return self.split_params(hidden) + self.whole_params(hidden) + self.routed_params(hidden)

    def active_matrix_params(self, hidden: int) -> int:
        """Parameters that multiply one token. [-]"""
        feed = self.feed_forward
        if isinstance(feed, Moe):
            routed = feed.top_k * feed.expert_params(hidden) + hidden * feed.num_experts
            return self.attention.matrix_params(hidden) + routed + feed.shared_params(hidden)
        return self.attention.matrix_params(hidden) + feed.params(hidden)


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer: embedding, layers, final norm, LM head; MTP modules behind the last layer.

    ``mtp_layers`` multi-token-prediction modules (DeepSeek-V3) each hold a layer like the last one, a projection from
    twice the width, and three norms; they share embedding and head. ``learned_positions``: a position table with a row
    per position of the sequence; parameter totals leave it out.
    """

    name: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    tied_embeddings: bool = False
    learned_positions: bool = False
    mtp_layers: int = 0

    @property
    def embedding_params(self) -> int:
        """Parameters of the input embedding. [-]"""
        return self.vocab * self.hidden

    def position_params(self, sequence_length: int) -> int:
        """Parameters of the learned position table. [-]"""
        return sequence_length * self.hidden if self.learned_positions else 0

    @property
    def head_params(self) -> int:
        """Parameters of the LM head where it has its own. [-]"""
        return 0 if self.tied_embeddings else self.vocab * self.hidden

    @property
    def mtp_params(self) -> int:
        """Parameters of the MTP modules; totals leave them out. [-]"""
        per_module = self.layers[-1].params(self.hidden) + 2 * self.hidden * self.hidden + 3 * self.hidden
        return self.mtp_layers * per_module

    @cached_property
    def qk_norm_params(self) -> int:
        """Query and key norm gains of all layers; published parameter totals leave them out. [-]"""
        return sum(layer.attention.qk_norm_params for layer in self.layers)

    @cached_property
    def stored_params(self) -> int:
        """Every parameter that is stored and trained. [-]"""
        layers = sum(layer.params(self.hidden) for layer in self.layers)
        return layers + self.embedding_params + self.head_params + self.hidden + self.mtp_params

    @property
    def total_params(self) -> int:
        """Parameters as published totals count them: without MTP and without query and key norm gains. [-]"""
        return self.stored_params - self.qk_norm_params - self.mtp_params

    @cached_property
    def active_params(self) -> int:
        """Parameters that one token meets, input embedding and head both counted, as in ``total_params``. [-]"""
        idle = sum(
            layer.routed_params(self.hidden) - layer.moe.top_k * layer.moe.expert_params(self.hidden)
            for layer in self.layers
            if layer.moe
        )
        return self.total_params - idle

    @property
    def moe(self) -> Moe | None:
        """The routed experts of the last layer that has any (all are alike)."""
        return next((layer.moe for layer in reversed(self.layers) if layer.moe), None)

    def flop_per_token(self, sequence_length: int, convention: str = "causal", columns: Columns | None = None) -> float:
        """Model FLOPs of one token, forward and backward (three times the forward). [FLOP]

        ``causal`` counts the keys that a query may see, ``full`` all of them; both count router, head and MTP, and
        never recomputation. ``full`` also counts a learned position table as llm-foundry does, 6 s d.
        ``6n-plus-attn`` is 6 (P - V d) + 12 L d s with P the active parameters, V d the input embedding. `columns`: keys
        that a query may see, for ``causal``, where not those of a whole sequence.
        """
        if convention == "6n-plus-attn":
            params = self.active_params - self.embedding_params * (not self.tied_embeddings)
            return 6.0 * params + 12.0 * len(self.layers) * self.hidden * sequence_length
        if convention not in FLOPS_CONVENTIONS:
            raise ValueError(f"no FLOPs convention '{convention}'; known: {', '.join(FLOPS_CONVENTIONS)}")
        head = 2.0 * self.hidden * self.vocab
        forward = head + sum(self._forward_flop(layer, sequence_length, convention, columns) for layer in self.layers)
        extra = self._forward_flop(self.layers[-1], sequence_length, convention, columns) + head + 4.0 * self.hidden**2
        table = 2.0 * self.position_params(sequence_length) if convention == "full" else 0.0
        return 3 * (forward + self.mtp_layers * extra + table)

    def _forward_flop(self, layer: Layer, sequence_length: int, convention: str, columns: Columns | None) -> float:
        attention = layer.attention
        seen = (columns or mean_columns)(sequence_length, attention.window, attention.chunk)
        if convention == "full":
            seen = min(sequence_length, attention.window or sequence_length, attention.chunk or sequence_length)
        core = 2 * seen * attention.num_heads * (attention.query_dim + attention.value_dim)
        return 2 * layer.active_matrix_params(self.hidden) + core


def mean_columns(length: float, window: int | None = None, chunk: int | None = None) -> float:
    """Keys that a causal query attends to on average. [-]

    s/2 for full attention; w - w^2/(2s) for a window of w; c/2 inside blocks of c.
    """
    if window is not None and window < length:
        return window - window**2 / (2 * length)
    if chunk is not None and chunk < length:
        return chunk / 2
    return length / 2


FLOPS_CONVENTIONS = ("causal", "full", "6n-plus-attn")
