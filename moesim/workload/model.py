"""A model as a list of layers: shapes and parameter counts, no hardware, no parallelism."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention (MHA when ``num_kv_heads == num_heads``)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    qk_norm: bool = False

    @property
    def query_size(self) -> int:
        """Width of all query heads. [-]"""
        return self.num_heads * self.head_dim

    @property
    def qkv_size(self) -> int:
        """Width of the fused QKV projection. [-]"""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    def matrix_params(self, hidden: int) -> int:
        """Parameters of the QKV and output projections. [-]"""
        return hidden * self.qkv_size + self.query_size * hidden

    @property
    def qk_norm_params(self) -> int:
        """Gains of the per-head query and key norms, one vector each. [-]"""
        return 2 * self.head_dim if self.qk_norm else 0


@dataclass(frozen=True)
class Moe:
    """Routed experts with a gated or plain feed-forward each, chosen ``top_k`` per token."""

    num_experts: int
    top_k: int
    ffn_size: int
    gated: bool = True

    def expert_params(self, hidden: int) -> int:
        """Parameters of one expert. [-]"""
        return (3 if self.gated else 2) * hidden * self.ffn_size


@dataclass(frozen=True)
class Layer:
    """One decoder layer: pre-norm attention, then pre-norm routed experts."""

    attention: Attention
    moe: Moe

    def dense_params(self, hidden: int) -> int:
        """Parameters outside the routed experts: attention, both norms, router. [-]"""
        return (
            self.attention.matrix_params(hidden)
            + self.attention.qk_norm_params
            + 2 * hidden
            + hidden * self.moe.num_experts
        )

    def routed_params(self, hidden: int) -> int:
        """Parameters of all routed experts. [-]"""
        return self.moe.num_experts * self.moe.expert_params(hidden)


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer: embedding, layers, final norm, LM head."""

    name: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    tied_embeddings: bool = False

    @property
    def embedding_params(self) -> int:
        """Parameters of the input embedding. [-]"""
        return self.vocab * self.hidden

    @property
    def head_params(self) -> int:
        """Parameters of the LM head where it has its own. [-]"""
        return 0 if self.tied_embeddings else self.vocab * self.hidden

    @cached_property
    def qk_norm_params(self) -> int:
        """Query and key norm gains of all layers; published parameter totals leave them out. [-]"""
        return sum(layer.attention.qk_norm_params for layer in self.layers)

    @cached_property
    def stored_params(self) -> int:
        """Every parameter that is stored and trained. [-]"""
        layers = sum(layer.dense_params(self.hidden) + layer.routed_params(self.hidden) for layer in self.layers)
        return layers + self.embedding_params + self.head_params + self.hidden

    @property
    def total_params(self) -> int:
        """Parameters as published totals count them: without the query and key norm gains. [-]"""
        return self.stored_params - self.qk_norm_params

    @cached_property
    def active_params(self) -> int:
        """Parameters that one token meets, input embedding and head both counted, as in ``total_params``. [-]"""
        idle = sum(
            layer.routed_params(self.hidden) - layer.moe.top_k * layer.moe.expert_params(self.hidden)
            for layer in self.layers
        )
        return self.total_params - idle

    def flop_per_token(self, sequence_length: int, convention: str = "causal") -> float:
        """Model FLOPs of one token, forward and backward (three times the forward). [FLOP]

        ``causal`` counts half of the attention square, ``full`` all of it. Recomputation never counts.
        """
        columns = sequence_length / 2 if convention == "causal" else sequence_length
        forward = 2.0 * self.hidden * self.vocab
        for layer in self.layers:
            matrices = (
                layer.attention.matrix_params(self.hidden)
                + self.hidden * layer.moe.num_experts
                + layer.moe.top_k * layer.moe.expert_params(self.hidden)
            )
            forward += 2 * matrices + 4 * columns * layer.attention.query_size
        return 3 * forward


FLOPS_CONVENTIONS = ("causal", "full")
