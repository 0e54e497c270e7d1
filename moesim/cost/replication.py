"""What keeps the replicas of training state alike: gradients that are reduced, weights that are gathered."""

from collections.abc import Mapping

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import collective_time
from moesim.cost.compression import compression_time, factor_messages
from moesim.cost.plan import Plan
from moesim.workload.ops import Message
from moesim.workload.sharding import RankParams


def stage_reduction_time(plan: Plan, stage: int) -> Numeric:
    """Time to reduce the gradients of one stage at the end of the step, compressed where they are. [s]"""
    buckets = gradient_buckets(plan, plan.trained[stage])
    return messages_time(plan, stage_messages(plan, stage), buckets) + compression_time(plan, stage)


def stage_messages(plan: Plan, stage: int) -> tuple[Message, ...]:
    """What reduces the gradients of one stage at the end of the step."""
    chosen, rank = plan.compression
    low_rank = chosen is not None and chosen.low_rank
    return factor_messages(plan, stage, rank) if low_rank else gradient_messages(plan, plan.trained[stage])


def gradient_buckets(plan: Plan, params: RankParams) -> dict[str, Numeric]:
    """Buckets that the gradients of each kind fill; empty where they are reduced as a whole. [-]"""
    size = plan.strategy.grad_bucket_bytes
    if size is None:
        return {}
    counts = {"dense": params.dense, "routed": params.routed}
    return {kind: np.maximum(np.ceil(plan.state_types.grad * count / size), 1.0) for kind, count in counts.items()}


def gradient_reduction_time(plan: Plan, params: RankParams) -> Numeric:
    """Time to reduce gradients at the end of the step. [s]"""
    return messages_time(plan, gradient_messages(plan, params), gradient_buckets(plan, params))


def parameter_gather_time(plan: Plan, params: RankParams) -> Numeric:
    """Time to gather the updated weights of one stage from its replicas. [s]"""
    return messages_time(plan, gather_messages(plan, params))


def gradient_messages(plan: Plan, params: RankParams) -> tuple[Message, ...]:
    """What reduces the gradients of one stage at the end of the step.

    Reduce-scatter where the optimizer is sharded, all-reduce where it is not or the software reduces gradients whole, and
    all-reduce over the replicas of a shard under hybrid sharding; dense and expert gradients over their own groups.
    """
    chosen, _ = plan.compression
    value_bytes = plan.state_types.grad if chosen is None else chosen.wire_bytes or plan.state_types.grad
    across: tuple[Message, ...] = ()
    if plan.sharding.inside_node:
        owned = RankParams(params.dense / plan.replicas.dense, params.routed / plan.replicas.routed)
        across = _messages(owned, value_bytes, "all-reduce", "replica")
    if plan.sharding.per_micro_batch:
        return across
    return across + _messages(params, value_bytes, plan.reduction, "shard")


def gather_messages(plan: Plan, params: RankParams) -> tuple[Message, ...]:
    """What gathers the updated weights of one stage."""
    return _messages(params, plan.state_types.param, "all-gather", "shard")


def _messages(params: RankParams, value_bytes: float, collective: str, over: str) -> tuple[Message, ...]:
    counts = {"dense": params.dense, "routed": params.routed}
    return tuple(Message(collective, f"{part}-{over}", value_bytes * count) for part, count in counts.items())


def messages_time(plan: Plan, messages: tuple[Message, ...], buckets: Mapping[str, Numeric] | None = None) -> Numeric:
    """Time of messages about training state, one after another. [s]

    `buckets`: equal pieces that the messages of a kind are cut into; each takes at least the host's launch. [-]
    """
    total: Numeric = 0.0
    for work in messages:
        group = plan.group(work.axis)
        group = plan.copies_of(group) if work.axis.endswith(("-shard", "-replica")) else group
        pieces = (buckets or {}).get(work.axis.partition("-")[0])
        if pieces is None:
            seconds = collective_time(work.collective, work.size, group, plan.machine.links)
        else:
            one = collective_time(work.collective, work.size / pieces, group, plan.machine.links)
            seconds = pieces * np.where(np.greater(one, 0), np.maximum(one, plan.machine.host.launch), 0.0)
        total = total + seconds * plan.raised(work, "dp", message_name(work))
    return total


def message_name(work: Message) -> str:
    """Name of a message about training state."""
    return f"{work.collective} of {work.axis.partition('-')[0]} state"
