"""Parameters that each rank holds, and how training state is sharded over the replicas.

Dense parameters have ``dp x cp`` replicas, routed experts ``edp``. The four shardings differ in what each replica keeps:

============  =========  ===========  ===========
sharding      weights    gradients    optimizer
============  =========  ===========  ===========
ddp           whole      whole        whole
zero1         whole      whole        shard
zero2         whole      shard        shard
fsdp, hsdp    shard      shard        shard
============  =========  ===========  ===========
"""

from dataclasses import dataclass

from moesim.base.numeric import Numeric
from moesim.workload.matrices import vector_params
from moesim.workload.mesh import Mesh
from moesim.workload.model import Layer, Model
from moesim.workload.stages import Stage


@dataclass(frozen=True)
class RankParams:
    """Parameters of one stage on one rank before sharding over replicas.

    ``dense`` are reduced over the group ``dp-cp``; ``routed`` (expert) parameters over ``edp``. ``plain`` of the dense
    ones are in no hidden matrix: embedding, head, norms, positions. [-]
    """

    dense: Numeric = 0.0
    routed: Numeric = 0.0
    plain: Numeric = 0.0

    def __add__(self, other: "RankParams") -> "RankParams":
        return RankParams(self.dense + other.dense, self.routed + other.routed, self.plain + other.plain)

    def weighted(self, matrix: float, plain: float) -> "RankParams":
        """Values, where each parameter of a hidden matrix has so many and each other one so many. [-]"""
        other = plain * self.plain
        return RankParams(matrix * (self.dense - self.plain) + other, matrix * self.routed, other)

    @property
    def total(self) -> Numeric:
        """Dense and routed. [-]"""
        return self.dense + self.routed

    def share(self, dense_ranks: Numeric, routed_ranks: Numeric) -> Numeric:
        """Parameters left on one rank when each kind is split over that many. [-]"""
        return self.dense / dense_ranks + self.routed / routed_ranks


@dataclass(frozen=True)
class Sharding:
    """Which parts of the training state are split over the replicas."""

    weights: bool
    gradients: bool
    optimizer: bool
    inside_node: bool = False

    @property
    def per_micro_batch(self) -> bool:
        """Whether gradients are reduced after every micro-batch instead of once per step."""
        return self.gradients


SHARDINGS = {
    "ddp": Sharding(False, False, False),
    "zero1": Sharding(False, False, True),
    "zero2": Sharding(False, True, True),
    "fsdp": Sharding(True, True, True),
    "hsdp": Sharding(True, True, True, inside_node=True),
}
"""Shardings by name; ``hsdp`` shards inside an NVLink domain and replicates across."""


@dataclass(frozen=True)
class Replicas:
    """Ranks over which each kind of parameter is split, and how often the split is replicated. [-]"""

    dense: Numeric
    routed: Numeric


def layer_params(layer: Layer, hidden: int, mesh: Mesh) -> RankParams:
    """Parameters of one layer on one rank: matrices split over tp, norms and router whole, experts over ep x etp."""
    dense = layer.split_params(hidden) / mesh.tp + layer.whole_params(hidden)
    return RankParams(dense, layer.routed_params(hidden) / (mesh.ep * mesh.etp), float(vector_params(layer, hidden)))


def embedding_params(model: Model, mesh: Mesh, sequence_length: int) -> RankParams:
    """Parameters of the input embedding and the position table on one rank. [-]"""
    params = model.embedding_params / mesh.tp + model.position_params(sequence_length)
    return RankParams(params, 0.0, params)


def head_params(model: Model, mesh: Mesh, own_embedding: bool) -> RankParams:
    """Parameters of final norm and LM head on one rank; a tied head elsewhere keeps a copy of the embedding. [-]"""
    head = model.embedding_params if model.tied_embeddings and not own_embedding else model.head_params
    params = head / mesh.tp + model.hidden
    return RankParams(params, 0.0, params)


def mtp_params(model: Model, mesh: Mesh) -> RankParams:
    """Parameters of one MTP module on one rank: a layer, the projection and three norms. [-]"""
    extra = 2 * model.hidden**2 + 3 * model.hidden
    return layer_params(model.layers[-1], model.hidden, mesh) + RankParams(float(extra), 0.0, 3.0 * model.hidden)


def stage_params(model: Model, stage: Stage, mesh: Mesh, sequence_length: int) -> RankParams:
    """Parameters of one stage on one rank."""
    params = RankParams()
    layers = [model.layers[index] for index in stage.layers]
    each = {layer: layer_params(layer, model.hidden, mesh) for layer in dict.fromkeys(layers)}
    for layer in layers:
        params = params + each[layer]
    if stage.embedding:
        params = params + embedding_params(model, mesh, sequence_length)
    if stage.loss:
        params = params + head_params(model, mesh, stage.embedding)
    for _ in range(stage.mtp):
        params = params + mtp_params(model, mesh)
    if stage.mtp and not stage.embedding:
        again = model.embedding_params / mesh.tp
        params = params + RankParams(again, 0.0, again)  # MTP looks its tokens up again
    return params


@dataclass(frozen=True)
class StateTypes:
    """Bytes of one value of each kind of state. [B]

    ``main``: FP32 main weights beside low-precision ones; 0 where the weights are their own main weights. ``copies``:
    cast copies of the weights (FP8). ``compute``: what a gather of sharded weights brings back. ``matrix_moments``,
    ``plain_moments``: moments of a parameter in a hidden matrix, and of another. [-]
    """

    param: float
    grad: float
    moment: float
    main: float
    copies: float = 0.0
    compute: float = 2.0
    matrix_moments: float = 2.0
    plain_moments: float = 2.0


@dataclass(frozen=True)
class StateBytes:
    """Training state of one stage on one rank. [B]"""

    weights: Numeric
    gradients: Numeric
    optimizer: Numeric


def state_bytes(params: RankParams, replicas: Replicas, types: StateTypes, sharding: Sharding) -> StateBytes:
    """Bytes of weights, gradients and optimizer state that stay on one rank."""
    whole, shard = params.total, params.share(replicas.dense, replicas.routed)
    moments = moment_values(params, replicas, types, sharding)
    return StateBytes(
        (types.param + types.copies) * (shard if sharding.weights else whole),
        types.grad * (shard if sharding.gradients else whole),
        types.main * (shard if sharding.optimizer else whole) + types.moment * moments,
    )


def moment_values(params: RankParams, replicas: Replicas, types: StateTypes, sharding: Sharding) -> Numeric:
    """Values of optimizer moments that one rank keeps. [-]"""
    values = params.weighted(types.matrix_moments, types.plain_moments)
    return values.share(replicas.dense, replicas.routed) if sharding.optimizer else values.total


def update_bytes(params: RankParams, replicas: Replicas, types: StateTypes, sharding: Sharding) -> Numeric:
    """HBM traffic of the optimizer step. [B]

    Clear the gradients; read the owned gradients for the norm and again for the update; read and write each moment and
    the main weights, then write the weights; or, where these are their own main weights, read and write them. Read the
    weights again to write their cast copies.
    """
    whole, shard = params.total, params.share(replicas.dense, replicas.routed)
    owned = shard if sharding.optimizer else whole
    weights = 2 * types.main + types.param if types.main else 2 * types.param
    moments = 2 * types.moment * moment_values(params, replicas, types, sharding)
    cast = (2 + types.copies) * (types.copies > 0) * (shard if sharding.weights else whole)
    update = (2 * types.grad + weights) * owned + moments
    return types.grad * (shard if sharding.gradients else whole) + update + cast
