"""What saving and loading cost, by what the files hold."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.workload.sharding import RankParams

SOURCE = "olmo-core-report"
CHECKPOINT_BYTES = 12.0
"""Bytes of a parameter in a checkpoint: FP32 main weight and two moments."""


def _own_bytes(case: Case) -> Numeric:
    """Saved state that stays on one rank, on average over the pipeline ranks. [B]"""
    plan = case.plan
    params: RankParams = sum(plan.params, RankParams())
    kept = params.share(plan.replicas.dense, plan.replicas.routed) if plan.sharding.optimizer else params.total
    return CHECKPOINT_BYTES * kept / case.ranks


def peak_memory(case: Case) -> Terms:
    """GPU memory that a save adds: a copy of what the rank writes, or whole tensors brought together. [B]

    Views by global keys leave piece by piece through the host and add nothing.
    """
    if case.choices.checkpoint == "global":
        return {"copies": 0.0}
    if case.choices.writer == "whole":
        return {"whole tensors on the rank that writes": CHECKPOINT_BYTES * case.plan.model.stored_params}
    return {"copies of the rank's own state": _own_bytes(case)}


def bound_axes(case: Case) -> Terms:
    """Parallel axes that split the saved state and are frozen into the files. [-]"""
    if case.choices.checkpoint == "global":
        return {"axes": 0.0}
    plan, mesh = case.plan, case.plan.mesh
    sharded = plan.sharding.optimizer
    axes = {
        "tp": np.greater(mesh.tp, 1),
        "pp": np.greater(mesh.pp, 1),
        "ep": np.greater(mesh.ep, 1),
        "dp": np.greater(plan.replicas.dense, 1) & sharded,
    }
    return {name: value * 1.0 for name, value in axes.items()}


def conversion(case: Case) -> Terms:
    """Time in which a save and a load bring state into another form, each parameter once, at the memory rate of one GPU. [s]

    Global keys flatten each tensor and match chunks; caches that are not saved are cast again. Conversion of files outside
    of the job is not counted.
    """
    plan = case.plan
    rate = plan.machine.gpu.memory_bandwidth
    found: Terms = {}
    if case.choices.checkpoint == "global":
        found["flattened and matched"] = 2 * CHECKPOINT_BYTES * plan.model.stored_params / rate
    if plan.recipe.casts and not case.choices.saved_caches:
        found["caches cast again"] = (
            (2 + plan.state_types.param + plan.state_types.copies) * plan.model.stored_params / rate
        )
    return found


bottlenecks.add(
    "checkpoint-peak",
    Bottleneck("Checkpoint peak memory", "checkpoint", "B", peak_memory, 25, absent="unasked"),
    summary="GPU memory that a save adds.",
    source=SOURCE,
)
bottlenecks.add(
    "topology-restart",
    Bottleneck("Topology-dependent restart", "checkpoint", "-", bound_axes, 26),
    summary="Parallel axes that are frozen into the files of a checkpoint.",
    source=SOURCE,
)
bottlenecks.add(
    "checkpoint-conversion",
    Bottleneck("Save/load conversion time", "checkpoint", "s", conversion, 27),
    summary="Time in which a save and a load bring state into another form.",
    source=SOURCE,
)
