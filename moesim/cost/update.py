"""The optimizer step of one rank: HBM traffic of the update, and what orthogonalising matrices adds."""

from collections import Counter

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.gemm import gemm_time
from moesim.cost.memory_bound import traffic_time
from moesim.cost.plan import Plan
from moesim.cost.replication import messages_time
from moesim.workload.matrices import WHOLE, Matrix, stage_matrices
from moesim.workload.ops import Gemm, Message, Traffic
from moesim.workload.sharding import RankParams, update_bytes

ORTHOGONALISE_BYTES = 12.0
"""HBM bytes for a value beside the products: cast the FP32 moment to BF16 (4 + 2), norm (2), scale (2 + 2). [B]"""


def held_params(plan: Plan, rank: int) -> RankParams:
    """Trained parameters of all stages of a pipeline rank."""
    return sum((plan.trained[stage] for stage in _stages(plan, rank)), RankParams())


def optimizer_work(plan: Plan, rank: int) -> Traffic:
    """HBM traffic of the update of one rank."""
    held = held_params(plan, rank)
    work = update_bytes(held, plan.replicas, plan.state_types, plan.sharding)
    if plan.optimizer.newton_schulz_steps:
        work = work + ORTHOGONALISE_BYTES * owned_params(plan, held.weighted(1.0, 0.0))
    return Traffic(work)


def _stages(plan: Plan, rank: int) -> list[int]:
    ranks = plan.stage_rank
    return [stage for stage, owner in enumerate(ranks) if owner == rank]


def owned_params(plan: Plan, params: RankParams) -> Numeric:
    """Values that one rank updates. [-]"""
    sharded = plan.sharding.optimizer
    return params.share(plan.replicas.dense, plan.replicas.routed) if sharded else params.total


def held_matrices(plan: Plan, rank: int) -> Counter[Matrix]:
    """Matrices of all stages of a pipeline rank, and how many layers have each."""
    return sum((stage_matrices(plan.model, plan.stages[stage]) for stage in _stages(plan, rank)), Counter())


def newton_schulz(matrix: Matrix) -> tuple[Gemm, ...]:
    """Products of one step on one matrix X of n rows, n the smaller width.

    A = X X^T, B = b A + c A^2, X = a X + B X: 4 n^2 m + 2 n^3 FLOP.

    References
    ----------
    liu2025-muon
    """
    small, large = sorted((matrix.inputs, matrix.outputs))
    return Gemm(small, small, large), Gemm(small, small, small), Gemm(small, large, small)


def orthogonalise_products(plan: Plan, rank: int) -> list[tuple[Gemm, Numeric]]:
    """Newton-Schulz products of one rank, and how often each runs in a step. [-]"""
    steps = plan.optimizer.newton_schulz_steps
    return [
        (work, steps * layers * _matrices(plan, matrix))
        for matrix, layers in (held_matrices(plan, rank).items() if steps else ())
        for work in newton_schulz(matrix)
    ]


def orthogonalise_bytes(plan: Plan, rank: int) -> Numeric:
    """Working set of the largest matrix in BF16: X twice, A and B. [B]"""
    matrices = held_matrices(plan, rank) if plan.optimizer.newton_schulz_steps else ()
    sizes = (4.0 * m.inputs * m.outputs + 4.0 * min(m.inputs, m.outputs) ** 2 for m in matrices)
    return max(sizes, default=0.0)


def orthogonalise_time(plan: Plan, rank: int) -> Numeric:
    """Time of the Newton-Schulz products of one rank. [s]

    Whole matrices are shared out over the ranks that split the optimizer; a rank has at least one.
    """
    steps = plan.optimizer.newton_schulz_steps
    total: Numeric = 0.0
    largest: Numeric = 0.0
    for matrix, layers in held_matrices(plan, rank).items() if steps else ():
        seconds: Numeric = 0.0
        for work in newton_schulz(matrix):
            seconds = seconds + gemm_time(work, plan.machine.gpu) * plan.raised(work, "gemm", "Newton-Schulz")
        total = total + steps * seconds * layers * _matrices(plan, matrix)
        largest = np.maximum(largest, steps * seconds)
    return np.maximum(total, largest)


def _matrices(plan: Plan, matrix: Matrix) -> Numeric:
    """Matrices of one layer that a rank orthogonalises. [-]"""
    whole = matrix.count / plan.mesh.ep if matrix.routed else matrix.count
    if not plan.sharding.optimizer:
        return whole
    return whole / (plan.replicas.routed if matrix.routed else plan.replicas.dense)


def orthogonalise_messages(plan: Plan, rank: int) -> tuple[Message, ...]:
    """Gathering of the pieces of a moment in BF16, over the shards of the optimizer and over tensor parallelism.

    An upper bound: of a matrix, only the ranks that have a piece of it need the rest.
    """
    if not plan.optimizer.newton_schulz_steps:
        return ()
    values = held_params(plan, rank).weighted(1.0, 0.0)
    dense: Numeric = 0.0
    routed: Numeric = 0.0
    for matrix, layers in held_matrices(plan, rank).items():
        if matrix.split != WHOLE:
            size = 2.0 * layers * matrix.inputs * matrix.outputs * _matrices(plan, matrix)
            dense, routed = (dense, routed + size) if matrix.routed else (dense + size, routed)
    split = (Message("all-gather", "tp", dense), Message("all-gather", "etp", routed))
    if not plan.sharding.optimizer:
        return split
    shards = {"dense-shard": values.dense, "routed-shard": values.routed}
    return split + tuple(Message("all-gather", axis, 2.0 * count) for axis, count in shards.items())


def traffic_part(plan: Plan, rank: int) -> Numeric:
    """Time of the HBM traffic of the update of one rank. [s]"""
    work = optimizer_work(plan, rank)
    return traffic_time(work.hbm_bytes, plan.machine.gpu) * plan.raised(work, "optimizer", f"optimizer of rank {rank}")


def update_parts(plan: Plan, rank: int) -> dict[str, Numeric]:
    """Seconds of what the GPU of one rank does of the optimizer step by category; they add up to it. [s]"""
    gpu_share = 1.0 - plan.strategy.optimizer_offload
    parts = {"optimizer": gpu_share * traffic_part(plan, rank) + orthogonalise_time(plan, rank)}
    messages = orthogonalise_messages(plan, rank)
    return parts | ({"dp": messages_time(plan, messages)} if messages else {})


def optimizer_time(plan: Plan, rank: int) -> Numeric:
    """Time of the optimizer step of one rank. [s]"""
    return sum(update_parts(plan, rank).values(), 0.0)
