"""Projections of multi-head latent attention (DeepSeek-V2).

The down-projections run whole on each rank's own tokens; the latents, not the hidden states, are gathered for the
up-projections, which tensor parallelism splits by heads (Megatron-Core ``MLASelfAttention``).
"""

from moesim.workload.linear import Linear, TensorRegion, traffic
from moesim.workload.model import LatentAttention
from moesim.workload.ops import Saved
from moesim.workload.projections import Projections
from moesim.workload.setting import Setting

LAYERNORM = frozenset({"layernorm", "full"})
ATTENTION = frozenset({"attn", "full"})
UP = frozenset({"mla_up_proj", "attn", "full"})


def latent_projections(attention: LatentAttention, hidden: int, setting: Setting) -> Projections:
    """Down-projections, latent norms, up-projections and rotary embedding."""
    tp, tokens, local = setting.mesh.tp, setting.tokens, setting.local_tokens
    heads = attention.num_heads / tp
    latent = attention.kv_rank + attention.rope_dim
    query_width, expanded = heads * attention.query_dim, heads * (attention.nope_dim + attention.value_dim)
    # a copy of the values, or the whole up-projection that they are a view of
    held = expanded if setting.fusion.latent_value_views else heads * attention.value_dim
    row = 2 * local * hidden
    rotated = tokens * (2 * heads * attention.query_dim)

    down_kv = Linear("kv-down", local, latent, hidden, setting, modules=ATTENTION)
    up_kv = Linear("kv-up", tokens, expanded, attention.kv_rank, setting, modules=UP)
    region_kv = TensorRegion("kv-up", 2 * tokens * latent, setting)
    kv_norm = traffic("kv-norm", 4 * local * attention.kv_rank, modules=ATTENTION)
    if attention.q_rank is None:
        up_q = Linear("query", tokens, query_width, hidden, setting, modules=UP)
        region_q = TensorRegion("query", 2 * tokens * hidden, setting)
        query_forward, query_backward = region_q.enter(up_q), region_q.enter_backward(up_q)
        query_saved: tuple[Saved, ...] = ()
    else:
        down_q = Linear("query-down", local, attention.q_rank, hidden, setting, modules=ATTENTION)
        up_q = Linear("query", tokens, query_width, attention.q_rank, setting, modules=UP)
        region_q = TensorRegion("query", 2 * tokens * attention.q_rank, setting)
        norm = traffic("query-norm", 4 * local * attention.q_rank, modules=ATTENTION)
        norm_backward = traffic("query-norm-backward", 8 * local * attention.q_rank, 2)
        query_forward = (*down_q.forward(), norm, *region_q.enter(up_q))
        query_backward = (*region_q.enter_backward(up_q), norm_backward, *down_q.backward())
        query_saved = (
            Saved("query-latent", 2 * local * attention.q_rank, ATTENTION),
            Saved("query-latent-normed", setting.recipe.saved_bytes * local * attention.q_rank, ATTENTION),
        )
    return Projections(
        forward=(
            *query_forward,
            *down_kv.forward(),
            kv_norm,
            *region_kv.enter(up_kv),
            traffic("rope", 4 * rotated, 4, modules=UP),
        ),
        backward=(
            traffic("rope-backward", 4 * rotated, 4),
            *region_kv.enter_backward(up_kv),
            traffic("kv-norm-backward", 8 * local * attention.kv_rank, 2),
            *down_kv.backward(),
            *query_backward,
        ),
        saved=(
            Saved("input-norm-output", row * setting.recipe.saved_bytes / 2, LAYERNORM),
            *query_saved,
            Saved("kv-latent", 2 * local * latent, ATTENTION),
            Saved("kv-latent-normed", setting.recipe.saved_bytes * local * attention.kv_rank, ATTENTION),
            Saved("query", 2 * tokens * query_width, UP),
            Saved("key", 2 * tokens * query_width, UP),  # each head's key with the shared rotary part
            Saved("value", 2 * tokens * held, UP),
        ),
    )
