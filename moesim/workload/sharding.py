"""Parameters that each rank holds, and how its training state is sharded."""

from dataclasses import dataclass

from moesim.base.numeric import Numeric
from moesim.workload.mesh import Mesh
from moesim.workload.model import Layer, Model
from moesim.workload.stages import Stage


@dataclass(frozen=True)
class RankParams:
    """Parameters of one stage on one rank.

    ``dense`` are reduced over the group ``dp-cp``; ``routed`` (expert) parameters over ``edp``. [-]
    """

    dense: Numeric
    routed: Numeric

    @property
    def total(self) -> Numeric:
        """Dense and routed. [-]"""
        return self.dense + self.routed


def layer_params(layer: Layer, hidden: int, mesh: Mesh) -> RankParams:
    """Parameters of one layer on one rank: matrices split over tp, norms and router whole, experts over ep x etp."""
    matrices = layer.attention.matrix_params(hidden)
    whole = layer.dense_params(hidden) - matrices
    return RankParams(matrices / mesh.tp + whole, layer.routed_params(hidden) / (mesh.ep * mesh.etp))


def stage_params(model: Model, stage: Stage, mesh: Mesh) -> RankParams:
    """Parameters of one stage on one rank; embedding and head are split over the vocabulary."""
    dense: Numeric = 0.0
    routed: Numeric = 0.0
    for index in stage.layers:
        params = layer_params(model.layers[index], model.hidden, mesh)
        dense, routed = dense + params.dense, routed + params.routed
    if stage.embedding:
        dense = dense + model.embedding_params / mesh.tp
    if stage.loss:
        head = model.head_params
        if model.tied_embeddings and not stage.embedding:
            head = model.embedding_params  # the last stage keeps a copy of the tied embedding
        dense = dense + head / mesh.tp + model.hidden
    return RankParams(dense, routed)


@dataclass(frozen=True)
class StateBytes:
    """Training state of one stage on one rank. [B]"""

    weights: Numeric
    gradients: Numeric
    optimizer: Numeric


@dataclass(frozen=True)
class StateTypes:
    """Bytes of one value of each kind of state: weights, gradients, FP32 main weights, each of two Adam moments."""

    param: int
    grad: int
    moment: int

    @property
    def main(self) -> int:
        """FP32 main weights beside low-precision weights; FP32 weights are their own main weights. [B]"""
        return 4 if self.param < 4 else 0


def state_bytes(params: RankParams, mesh: Mesh, types: StateTypes, sharded_optimizer: bool) -> StateBytes:
    """Bytes of weights, gradient buffer and optimizer state.

    A distributed optimizer (ZeRO-1) shards main weights and moments over the replicas of each parameter: dense ones
    over ``dp x cp``, experts over ``edp``.
    """
    per_param = types.main + 2 * types.moment
    shard = owned_params(params, mesh) if sharded_optimizer else params.total
    return StateBytes(types.param * params.total, types.grad * params.total, per_param * shard)


def owned_params(params: RankParams, mesh: Mesh) -> Numeric:
    """Parameters that one rank updates under a distributed optimizer. [-]"""
    return params.dense / mesh.size("dp-cp") + params.routed / mesh.edp


def update_bytes(params: RankParams, mesh: Mesh, types: StateTypes, sharded_optimizer: bool) -> Numeric:
    """HBM traffic of the optimizer step. [B]

    Clear the gradient buffer; read the owned gradients for the norm and again for the update; read and write main
    weights and both moments; write the weights.
    """
    owned = owned_params(params, mesh) if sharded_optimizer else params.total
    update = 2 * types.grad + 2 * (types.main + 2 * types.moment) + types.param
    return types.grad * params.total + update * owned
