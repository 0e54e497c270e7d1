"""Communication that nothing hides, and what kernels lose beside communication that something hides."""

from dataclasses import replace
from functools import partial

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.offload import offloaded_bytes, offloads, stall
from moesim.cost.pipeline import COMMUNICATION
from moesim.cost.replication import messages_time, stage_messages
from moesim.cost.transports import leg_time
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.workload.ops import FusedExperts

SOURCE = "olmo-core-report"
NCCL = "nccl-alltoall"


def exposed(case: Case) -> Terms:
    """Time by which the step gets shorter without a class of communication, and without copies to the host. [s]"""
    found: Terms = {name: partial(_class_exposed, case, name) for name in COMMUNICATION}
    return found | {"pcie": lambda: _copies_exposed(case)}


def _class_exposed(case: Case, name: str) -> Numeric:
    timed = case.timed
    seconds = np.maximum(timed.makespan() - timed.makespan(name), 0.0)
    if name == "dp" and case.choices.reduction == "all-reduce" and case.plan.sharding.optimizer:
        seconds = seconds + _kept_reduction(case)
    return seconds


def _kept_reduction(case: Case) -> Numeric:
    """What an all-reduce takes longer than the reduce-scatter in its place, on the pipeline rank that loses most. [s]"""
    plan = case.plan
    ranks = plan.stage_rank
    longer: dict[int, Numeric] = dict.fromkeys(ranks, 0.0)
    for stage, rank in enumerate(ranks):
        scattered = tuple(one for one in stage_messages(plan, stage) if one.collective == "reduce-scatter")
        kept = tuple(replace(one, collective="all-reduce") for one in scattered)
        longer[rank] = longer[rank] + messages_time(plan, kept) - messages_time(plan, scattered)
    worst = np.max([np.broadcast_to(one, plan.shape) for one in longer.values()], axis=0)
    return np.asarray(np.maximum(worst, 0.0))


def _copies_exposed(case: Case) -> Numeric:
    """Copies of activations and experts that outlast the computation beside them. [s]"""
    plan = case.plan
    if not offloads(plan):
        return 0.0
    forward, backward = (_computing(case, which) for which in ("forward", "backward"))
    moved: Numeric = sum(offloaded_bytes(plan, case.blocks), 0.0) / len(plan.stages)
    each = stall(plan, moved, forward) + stall(plan, moved, backward)
    return each * plan.num_micro_batches * len(plan.stages) / case.ranks


def _computing(case: Case, which: str) -> Numeric:
    """Kernel seconds of a stage for one micro-batch, on average over the stages. [s]"""
    seconds: Numeric = 0.0
    for block, times in case.uses:
        for priced in getattr(block, which):
            if priced.op.category in ("gemm", "grouped_gemm", "attention", "memory_bound"):
                seconds = seconds + times * priced.seconds
    return seconds * case.ranks / case.passes / len(case.plan.stages)


def stretched_seconds(case: Case) -> Terms:
    """Kernel time lost to messages and copies that run beside, by their class. [s]

    A message that its SMs drive takes their share of the kernels for as long as both run; a copy takes memory bandwidth.
    """
    plan = case.plan
    gpu, machine = plan.machine.gpu, plan.machine
    nccl = 0.0 if case.choices.copy_engine else machine.transports[NCCL]["num_sms"] / gpu.num_sms
    seconds = _seconds(case)
    found: Terms = {
        "ep": _expert_share(case, nccl) * _beside_experts(case, seconds),
        "cp": nccl * np.minimum(seconds["cp"], seconds["attention"]) * (plan.strategy.cp_kind == "ring"),
        "dp": nccl * np.minimum(seconds["dp"], seconds["kernels"]),
        "pp": nccl * case.boundary_seconds * plan.strategy.overlap_p2p,
    }
    if plan.strategy.activation_offload:
        moved: Numeric = sum(offloaded_bytes(plan, case.blocks), 0.0)
        found["pcie"] = 2 * moved * plan.num_micro_batches / case.ranks / gpu.memory_bandwidth
    return found


def _expert_share(case: Case, nccl: Numeric) -> Numeric:
    name = case.plan.strategy.transport
    share = case.plan.transport.sm_share(case.plan.group("ep"), case.plan.machine)
    return nccl if name.startswith("nccl") else share


def _seconds(case: Case) -> dict[str, Numeric]:
    """Seconds by kind of operation: kernels, attention, shared experts, messages by class. [s]"""
    found: dict[str, Numeric] = dict.fromkeys(("kernels", "attention", "shared", "legs", "inside", *COMMUNICATION), 0.0)
    for priced, times in case.ops():
        op, spent = priced.op, times * priced.seconds
        if isinstance(op.work, FusedExperts):
            group, machine = case.plan.expert_group, case.plan.machine
            legs = (op.work.dispatch, op.work.combine)
            moved: Numeric = sum((leg_time(case.plan.transport, leg, group, machine) for leg in legs), 0.0)
            found["inside"] = found["inside"] + times * np.minimum(moved, priced.seconds)
        if op.category in COMMUNICATION:
            found[op.category] = found[op.category] + spent
        else:
            found["kernels"] = found["kernels"] + spent
        if op.category == "attention":
            found["attention"] = found["attention"] + spent
        if op.name.startswith("shared"):
            found["shared"] = found["shared"] + spent
    return found


def _beside_experts(case: Case, seconds: dict[str, Numeric]) -> Numeric:
    """Seconds of the expert exchange that run beside kernels. [s]"""
    strategy = case.plan.strategy
    legs, kernels = seconds["ep"], seconds["kernels"]
    if strategy.two_batch_overlap or strategy.overlap_ep:
        return np.minimum(legs, kernels)
    if strategy.expert_waves > 1:
        return np.minimum(legs * (1 - 1 / strategy.expert_waves), kernels)
    if strategy.delay_wgrad:
        return np.minimum(legs / 4, kernels)
    if strategy.overlap_shared_expert:
        return np.minimum(legs / 2, seconds["shared"])
    return seconds["inside"]


def contention(case: Case) -> Terms:
    """Kernel time lost to what runs beside. [s]"""
    return case.read(stretched_seconds)


bottlenecks.add(
    "exposed-communication",
    Bottleneck("Exposed communication", "waiting", "s", exposed, 23, by_class=True, priced=True, run=COMMUNICATION),
    summary="Time by which the step gets shorter without the communication that the method makes or changes.",
    source=SOURCE,
)
bottlenecks.add(
    "contention",
    Bottleneck("Communication-compute contention", "waiting", "s", contention, 24, by_class=True, priced=True),
    summary="Kernel time lost to messages and copies that run beside.",
    source=SOURCE,
)
