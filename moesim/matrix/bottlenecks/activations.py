"""What is kept from forward to backward, and what is held beside it while kernels and messages run."""

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.cost.offload import staging_bytes
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import AGAIN, Case, Terms
from moesim.workload.ops import Message

SOURCE = "olmo-core-report"


def _by_rank(case: Case) -> NDArray[np.float64]:
    """Activations that each pipeline rank keeps at most, logits left out. (ranks, ...) [B]"""
    kept = [np.broadcast_to(rank.phases["backward"]["activations"], case.plan.shape) for rank in case.tight_memory]
    return np.array(kept, dtype=float)


def saved_activations(case: Case) -> Terms:
    """Activations kept for the backward on the fullest rank, rows at work only. [B]"""
    return {"kept on the fullest rank": _by_rank(case).max(axis=0)}


def retention_imbalance(case: Case) -> Terms:
    """Activations of the fullest rank beyond those of the mean, over those of the mean. [-]"""
    by_rank = _by_rank(case)
    mean = by_rank.mean(axis=0)
    return {"fullest beyond mean rank": (by_rank.max(axis=0) - mean) / np.maximum(mean, 1.0)}


def fullest_over_mean(case: Case) -> Numeric:
    """Activations of the fullest rank over those of the mean. [-]"""
    return 1.0 + sum(case.read(retention_imbalance).values(), 0.0)


def buffers(case: Case) -> Terms:
    """What is neither state nor kept activations nor a kernel's own tensors, by what it is for. [B]"""
    found: Terms = {
        "dp": _most(case, "unsharded"),
        "ep": _sent_tensors(case) + _spare_leases(case) + _expert_buffers(case),
        "room for rows that arrive": _room(case),
        "pp": _boundary_buffers(case),
        "cp": _sequence_buffers(case),
        "pcie": staging_bytes(case.plan, case.blocks),
    }
    if case.captured or case.plan.captures("attn"):
        found["pools of captured graphs"] = _most(case, "workspace")
    return found


def _most(case: Case, name: str) -> Numeric:
    found = [np.broadcast_to(rank.phases["backward"][name], case.plan.shape) for rank in case.memory]
    return np.asarray(np.max(found, axis=0))


def _rows(case: Case) -> Numeric:
    """Bytes of all routed rows of a micro-batch, as they are dispatched. [B]"""
    leg = case.plan.leg
    return 0.0 if leg is None else leg.tokens * leg.top_k * leg.row_bytes * case.exchanges


def _symmetric(case: Case) -> bool:
    return bool(getattr(case.plan.transport, "symmetric_memory", False))


def _sent_tensors(case: Case) -> Numeric:
    """Packed rows of an exchange that makes tensors for each leg. [B]"""
    return 0.0 if _symmetric(case) or case.plan.leg is None else _legs_at_once(case) * _rows(case)


def _legs_at_once(case: Case) -> float:
    """Legs that are on their way together: one, or one of the forward beside one of the backward. [-]"""
    return 2.0 if case.plan.strategy.overlap_ep else 1.0


def _room(case: Case) -> Numeric:
    """Tensors for rows that arrive: of a capacity where the host knows no counts, else of what the hottest rank gets. [B]"""
    strategy = case.plan.strategy
    if _symmetric(case) or case.plan.leg is None:
        return 0.0
    share: Numeric = case.plan.setting.exchanged_load
    if strategy.sync_free and strategy.capacity_factor is not None:
        share = strategy.capacity_factor
    return _legs_at_once(case) * _rows(case) * share


def _in_flight(case: Case) -> Numeric:
    """Routed layers whose rows wait for the backward on the fullest rank. [-]"""
    if case.plan.leg is None or any(policy.whole_layer or policy.module == "moe" for policy in case.plan.recompute):
        return 1.0
    strategy, model = case.plan.strategy, case.plan.model
    routed = sum(layer.moe is not None for layer in model.layers)
    chunks = case.plan.schedule.in_flight(strategy.pp, case.plan.num_micro_batches, strategy.vpp)
    return max(chunks) * routed / (strategy.pp * strategy.vpp)


def _spare_leases(case: Case) -> Numeric:
    """Rows that leased buffers hold beyond those at work, in every layer whose rows wait for the backward. [B]"""
    strategy = case.plan.strategy
    if not _symmetric(case) or strategy.expert_kernel != "separate":
        return 0.0
    told = case.plan.machine.transports[strategy.transport]["capacity_factor"]
    spare = np.maximum((strategy.capacity_factor or told) - case.plan.setting.exchanged_load, 0.0)
    return spare * _rows(case) * _in_flight(case)


def _expert_buffers(case: Case) -> Numeric:
    """Buffers that an exchange through symmetric memory keeps: one for rows that return, more for a persistent kernel. [B]

    A persistent kernel has room for every row that all ranks of its group could send it.
    """
    leg, plan = case.plan.leg, case.plan
    if leg is None or not _symmetric(case):
        return 0.0
    back = leg.tokens * leg.top_k * leg.return_bytes * case.exchanges
    capacity = plan.strategy.capacity_factor or plan.machine.transports[plan.strategy.transport]["capacity_factor"]
    if plan.strategy.expert_kernel == "separate":
        return capacity * back
    local = leg.num_experts / plan.mesh.ep
    worst = plan.mesh.ep * np.minimum(local, leg.top_k) / leg.top_k
    return worst * _rows(case) + capacity * back


def _boundary_buffers(case: Case) -> Numeric:
    """What is sent and received at the ends of a stage, activations and gradients; twice where they overlap. [B]"""
    if not case.boundaries:
        return 0.0
    return 4 * case.boundary_bytes * (2 if case.plan.strategy.overlap_p2p else 1)


def _sequence_buffers(case: Case) -> Numeric:
    """The largest exchange of context parallelism, in and out. [B]"""
    largest: Numeric = 0.0
    for priced, _ in case.ops():
        work = priced.op.work
        if isinstance(work, Message) and work.axis == "cp" and not priced.op.name.endswith(AGAIN):
            size = work.size if work.collective == "all-to-all" else 2 * work.size / case.plan.mesh.cp
            largest = np.maximum(largest, 2 * size)
    return largest * np.greater(case.plan.mesh.cp, 1)


bottlenecks.add(
    "saved-activations",
    Bottleneck("Saved activation memory", "activations", "B", saved_activations, 3),
    summary="Activations kept for the backward on the fullest pipeline rank.",
    source=SOURCE,
)
bottlenecks.add(
    "retention-imbalance",
    Bottleneck("Activation-retention imbalance", "balance", "-", retention_imbalance, 4, scale=fullest_over_mean),
    summary="What the fullest pipeline rank keeps beyond the mean rank, over what that keeps.",
    source=SOURCE,
)
bottlenecks.add(
    "buffers",
    Bottleneck("Temporary/runtime buffers", "activations", "B", buffers, 5, by_class=True),
    summary="Gathered weights, rows and boundaries on their way, spare capacity, staging, pools of graphs.",
    source=SOURCE,
)
