"""Training state: what stays on a rank, what makes weights usable, what the optimizer touches, what replicas exchange."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.update import owned_params
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.matrix.traffic import link_seconds_of, sent_share, state_messages
from moesim.workload.ops import Message
from moesim.workload.sharding import RankParams

SOURCE = "olmo-core-report"


def persistent_state(case: Case) -> Terms:
    """Weights, gradients and optimizer state of a rank. [B]"""
    names = ("weights", "gradients", "optimizer")
    return {name: sum((rank.classes[name] for rank in case.memory), 0.0) / case.ranks for name in names}


def materialization(case: Case) -> Terms:
    """Bytes written to make weights usable: gathered ones, copies after an update, and what is staged for a cast. [B]"""
    plan, types = case.plan, case.plan.state_types
    params: RankParams = sum(plan.trained, RankParams())
    share = 1 / case.ranks
    gathered: Numeric = 0.0
    for priced, times in case.ops():
        work = priced.op.work
        if priced.op.category == "dp" and isinstance(work, Message) and work.collective == "all-gather":
            gathered = gathered + times * work.size * np.greater(plan.mesh.size(work.axis), 1)
    whole = owned_params(plan, params) if plan.sharding.weights else params.total
    found: Terms = {
        "gathered around layers": gathered,
        "written after the update": (types.param + types.copies) * whole * share,
    }
    if plan.recipe.casts and plan.sharding.optimizer and not plan.sharding.weights:
        found["gathered in BF16 before the cast"] = 2.0 * params.total * share * np.greater(plan.replicas.dense, 1)
    return found


def optimizer_work(case: Case) -> Terms:
    """HBM bytes of the update: state read and written, and low-precision caches made again. [B]"""
    plan, types = case.plan, case.plan.state_types
    params: RankParams = sum(plan.trained, RankParams())
    owned = owned_params(plan, params) / case.ranks
    kept = params.total / case.ranks if not plan.sharding.weights else owned
    moments = plan.optimizer.matrix_moments * types.moment
    caches = (2 + types.param + types.copies) * (plan.recipe.casts * 1.0)
    return {
        "gradients, main weights and moments": (types.grad + 2 * types.main + 2 * moments + 2.0) * owned,
        "low-precision caches": caches * kept,
    }


def state_sync(case: Case) -> Terms:
    """Bytes that a rank sends to keep replicas alike: gradients, and gathered weights. [B]"""
    found: Terms = {}
    for message, times in state_messages(case):
        sent = times * message.size * sent_share(message.collective, case.plan.mesh.size(message.axis))
        found[message.collective] = found.get(message.collective, 0.0) + sent
    return found


bottlenecks.add(
    "persistent-memory",
    Bottleneck("Persistent training-state memory", "state", "B", persistent_state, 1),
    summary="Weights, gradients, main weights, moments and caches of a rank.",
    source=SOURCE,
)
bottlenecks.add(
    "weight-materialization",
    Bottleneck("Weight materialization and refresh", "update", "B", materialization, 2),
    summary="Bytes written to make weights usable: gathered, refreshed after the update, cast again.",
    source=SOURCE,
)
bottlenecks.add(
    "optimizer-work",
    Bottleneck("Optimizer update work", "update", "B", optimizer_work, 6),
    summary="HBM bytes of the update of the parameters that a rank owns, and of caches made again.",
    source=SOURCE,
)
bottlenecks.add(
    "state-sync",
    Bottleneck(
        "Gradient/weight synchronization",
        "state",
        "B",
        state_sync,
        7,
        ties=(link_seconds_of("dp"),),
    ),
    summary="Bytes that a rank sends for gradients and weights in a step, however often they go.",
    source=SOURCE,
)
