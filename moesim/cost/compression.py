"""Compressed gradients: what travels, what it costs to compress, and what it keeps."""

from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.memory_bound import traffic_time
from moesim.cost.plan import Plan
from moesim.workload.matrices import ROWS, WHOLE, Matrix, stage_matrices
from moesim.workload.ops import Message
from moesim.workload.sharding import RankParams

LEAST_GAIN = 2.0
"""Matrices that would shrink by less travel whole (``min_compression_rate`` of PyTorch's hook). [-]"""
PASSES = 9.0
"""Passes over a compressed gradient: add the error (3), P = M Q and Q = M^T P (1 each), P Q^T (1), the new error (3)."""


@dataclass(frozen=True)
class Factors:
    """Values of the two factors of a stage's matrices, of the matrices themselves, and of what travels whole. [-]"""

    left: RankParams
    right: RankParams
    compressed: RankParams
    rest: RankParams


def low_rank_factors(plan: Plan, stage: int, rank: int) -> Factors:
    """Factors of rank r of the gradients of one stage on one rank.

    References
    ----------
    vogels2019-powersgd
    """
    left = right = compressed = RankParams()
    for matrix, layers in _matrices(plan, stage):
        rows, columns, count = _local(plan, matrix)
        count = count * layers * (LEAST_GAIN * rank * (rows + columns) < rows * columns)
        left = left + _of_kind(matrix, count * rank * rows)
        right = right + _of_kind(matrix, count * rank * columns)
        compressed = compressed + _of_kind(matrix, count * rows * columns)
    whole = plan.trained[stage]
    rest = RankParams(whole.dense - compressed.dense, whole.routed - compressed.routed)
    return Factors(left, right, compressed, rest)


def _matrices(plan: Plan, stage: int) -> list[tuple[Matrix, int]]:
    """Matrices of a stage, embedding and head among them."""
    model, held = plan.model, plan.stages[stage]
    ends = int(held.embedding) + int(held.loss and not (model.tied_embeddings and held.embedding))
    vocabulary = Matrix("vocabulary", model.hidden, model.vocab)
    return [*stage_matrices(model, held).items(), *(((vocabulary, ends),) if ends else ())]


def _local(plan: Plan, matrix: Matrix) -> tuple[Numeric, Numeric, Numeric]:
    """Rows, columns and number of the matrices of a layer on one rank. [-]"""
    split = 1.0 if matrix.split == WHOLE else plan.mesh.etp if matrix.routed else plan.mesh.tp
    rows = matrix.inputs / split if matrix.split == ROWS else matrix.inputs
    columns = matrix.outputs if matrix.split == ROWS else matrix.outputs / split
    return rows, columns, matrix.count / plan.mesh.ep if matrix.routed else matrix.count


def _of_kind(matrix: Matrix, values: Numeric) -> RankParams:
    return RankParams(0.0, values) if matrix.routed else RankParams(values)


def factor_messages(plan: Plan, stage: int, rank: int) -> tuple[Message, ...]:
    """All-reduces of both factors and of what travels whole, dense and expert gradients over their own groups."""
    factors, value = low_rank_factors(plan, stage, rank), plan.state_types.grad
    return tuple(
        Message("all-reduce", f"{kind}-shard", value * count)
        for part in (factors.left, factors.right, factors.rest)
        for kind, count in (("dense", part.dense), ("routed", part.routed))
    )


def compression_time(plan: Plan, stage: int) -> Numeric:
    """Time that compressing and restoring the gradients of one stage takes; it is bound by HBM. [s]

    A cast reads and writes each value on both ways, of a reduce-scatter only the shard on the way back. Products of
    rank r move far more bytes than they compute.
    """
    chosen, rank = plan.compression
    if chosen is None:
        return 0.0
    params, types = plan.trained[stage], plan.state_types
    if chosen.low_rank:
        values = low_rank_factors(plan, stage, rank).compressed.total
        return traffic_time(PASSES * types.grad * values, plan.machine.gpu)
    back = params.share(plan.replicas.dense, plan.replicas.routed) if plan.sharding.optimizer else params.total
    return traffic_time((types.grad + (chosen.wire_bytes or 0.0)) * (params.total + back), plan.machine.gpu)


def error_feedback_bytes(plan: Plan, stage: int) -> Numeric:
    """What a low-rank compression keeps of the gradients of one stage from step to step. [B]"""
    chosen, rank = plan.compression
    if chosen is None or not chosen.low_rank:
        return 0.0
    factors = low_rank_factors(plan, stage, rank)
    return plan.state_types.grad * (factors.compressed.total + factors.left.total + factors.right.total)


def cast_bytes(plan: Plan, params: RankParams) -> Numeric:
    """Cast gradients that are reduced at a time: a bucket, or all of them. [B]"""
    chosen, _ = plan.compression
    if chosen is None or chosen.wire_bytes is None:
        return 0.0
    whole = chosen.wire_bytes * params.total
    bucket = plan.strategy.grad_bucket_bytes
    return whole if bucket is None else np.minimum(whole, bucket * chosen.wire_bytes / plan.state_types.grad)
