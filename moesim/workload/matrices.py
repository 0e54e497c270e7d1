"""The weight matrices of a layer, one by one: what a matrix optimizer orthogonalises and what an adapter stands beside."""

from collections import Counter
from dataclasses import dataclass

from moesim.workload.model import Dense, LatentAttention, Layer, Model, Moe
from moesim.workload.stages import Stage

WHOLE, COLUMNS, ROWS = "whole", "columns", "rows"


@dataclass(frozen=True)
class Matrix:
    """``count`` equal matrices of a layer.

    Attributes
    ----------
    linear
        Name of the product that they belong to (queries, keys and values are one product).
    inputs, outputs
        Width of what goes in and of what comes out. [-]
    count
        How many there are in the whole model's layer. [-]
    split
        What tensor parallelism splits: ``columns`` (outputs), ``rows`` (inputs), or nothing (``whole``).
    routed
        They belong to routed experts.
    """

    linear: str
    inputs: int
    outputs: int
    count: int = 1
    split: str = COLUMNS
    routed: bool = False

    @property
    def params(self) -> int:
        """Parameters of all of them. [-]"""
        return self.inputs * self.outputs * self.count


def layer_matrices(layer: Layer, hidden: int) -> tuple[Matrix, ...]:
    """Every matrix of a layer; norms and biases are none."""
    return _attention(layer, hidden) + _feed_forward(layer, hidden)


def _attention(layer: Layer, hidden: int) -> tuple[Matrix, ...]:
    attention = layer.attention
    output = Matrix("projection", attention.num_heads * attention.value_dim, hidden, split=ROWS)
    if not isinstance(attention, LatentAttention):
        keys_values = Matrix("qkv", hidden, attention.num_kv_heads * attention.head_dim, 2)
        return (Matrix("qkv", hidden, attention.num_heads * attention.head_dim), keys_values, output)
    expanded = attention.num_heads * (attention.nope_dim + attention.value_dim)
    rank = attention.q_rank
    down = (Matrix("query-down", hidden, rank, split=WHOLE),) if rank else ()
    return (
        *down,
        Matrix("query", rank or hidden, attention.num_heads * attention.query_dim),
        Matrix("kv-down", hidden, attention.kv_rank + attention.rope_dim, split=WHOLE),
        Matrix("kv-up", attention.kv_rank, expanded),
        output,
    )


def _feed_forward(layer: Layer, hidden: int) -> tuple[Matrix, ...]:
    feed = layer.feed_forward
    if not isinstance(feed, Moe):
        return _pair("mlp", feed, hidden)
    up = 2 if feed.gated else 1
    return (
        Matrix("router", hidden, feed.num_experts, split=WHOLE),
        Matrix("expert-up", hidden, feed.ffn_size, up * feed.num_experts, routed=True),
        Matrix("expert-down", feed.ffn_size, hidden, feed.num_experts, ROWS, routed=True),
        *(_pair("shared", Dense(feed.shared_size, feed.gated), hidden) if feed.shared_size else ()),
    )


def _pair(name: str, feed: Dense, hidden: int) -> tuple[Matrix, ...]:
    up = Matrix(f"{name}-up", hidden, feed.ffn_size, 2 if feed.gated else 1)
    return (up, Matrix(f"{name}-down", feed.ffn_size, hidden, split=ROWS))


def vector_params(layer: Layer, hidden: int) -> int:
    """Parameters of a layer that are in no matrix: gains of its norms. [-]"""
    return layer.params(hidden) - sum(matrix.params for matrix in layer_matrices(layer, hidden))


def stage_matrices(model: Model, stage: Stage) -> Counter[Matrix]:
    """Matrices of the layers and MTP modules of a stage, and how many layers have each."""
    found: Counter[Matrix] = Counter()
    for index in stage.layers:
        found.update(layer_matrices(model.layers[index], model.hidden))
    if stage.mtp:
        module = (*layer_matrices(model.layers[-1], model.hidden), mtp_matrix(model))
        found.update({matrix: count * stage.mtp for matrix, count in Counter(module).items()})
    return found


def mtp_matrix(model: Model) -> Matrix:
    """The projection of an MTP module from twice the width."""
    return Matrix("mtp-projection", 2 * model.hidden, model.hidden, split=WHOLE)
