"""What keeps the replicas of training state alike: gradients that are reduced, weights that are gathered."""

from moesim.base.numeric import Numeric
from moesim.cost.collectives import collective_time
from moesim.cost.plan import Plan
from moesim.workload.ops import Message
from moesim.workload.sharding import RankParams


def gradient_reduction_time(plan: Plan, params: RankParams) -> Numeric:
    """Time to reduce the gradients of one stage at the end of the step. [s]"""
    return messages_time(plan, gradient_messages(plan, params))


def parameter_gather_time(plan: Plan, params: RankParams) -> Numeric:
    """Time to gather the updated weights of one stage from its replicas. [s]"""
    return messages_time(plan, gather_messages(plan, params))


def gradient_messages(plan: Plan, params: RankParams) -> tuple[Message, ...]:
    """What reduces the gradients of one stage at the end of the step.

    Reduce-scatter where the optimizer is sharded, all-reduce where it is not, and all-reduce over the replicas of a
    shard under hybrid sharding; dense and expert gradients over their own groups.
    """
    types = plan.state_types
    across: tuple[Message, ...] = ()
    if plan.sharding.inside_node:
        owned = RankParams(params.dense / plan.replicas.dense, params.routed / plan.replicas.routed)
        across = _messages(owned, types.grad, "all-reduce", "replica")
    if plan.sharding.per_micro_batch:
        return across
    collective = "reduce-scatter" if plan.sharding.optimizer else "all-reduce"
    return across + _messages(params, types.grad, collective, "shard")


def gather_messages(plan: Plan, params: RankParams) -> tuple[Message, ...]:
    """What gathers the updated weights of one stage."""
    return _messages(params, plan.state_types.param, "all-gather", "shard")


def _messages(params: RankParams, value_bytes: float, collective: str, over: str) -> tuple[Message, ...]:
    counts = {"dense": params.dense, "routed": params.routed}
    return tuple(Message(collective, f"{part}-{over}", value_bytes * count) for part, count in counts.items())


def messages_time(plan: Plan, messages: tuple[Message, ...]) -> Numeric:
    """Time of messages about training state, one after another. [s]"""
    total: Numeric = 0.0
    for work in messages:
        group = plan.machine.group(plan.mesh, work.axis)
        group = plan.copies_of(group) if work.axis.endswith(("-shard", "-replica")) else group
        seconds = collective_time(work.collective, work.size, group, plan.machine.links)
        total = total + seconds * plan.raised(work, "dp", message_name(work))
    return total


def message_name(work: Message) -> str:
    """Name of a message about training state."""
    return f"{work.collective} of {work.axis.partition('-')[0]} state"
