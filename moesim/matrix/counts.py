"""Counts of a step that no price holds: waits of the host, sizes that depend on data, kernels that the host launches."""

from __future__ import annotations

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.price import launches
from moesim.matrix.case import AGAIN, Case
from moesim.workload.ops import ExpertLeg, Message

STAGE_CALLS = 10.0
"""Calls around a chunk of a pipeline: wait for what comes in, post what goes out, enter the graph of gradients (assumed)."""
HOST_COPIES = 3.0
"""Copies with which the host reads the row counts of one exchange (OLMo-core sync_1d: counts, splits in, splits out)."""
RECORD_AND_WAIT = 2.0
"""Calls that let a kernel of one stream wait for another stream: record an event, wait for it."""


def _routed_passes(case: Case) -> Numeric:
    """Forwards and backwards of routed layers in a step; a repeated forward counts. [-]"""
    return sum((n for priced, n in case.ops() if _first_product(priced.op.name)), 0.0)


def _first_product(name: str) -> bool:
    plain = name.removesuffix(AGAIN)
    return plain in ("expert-up", "expert-up 1", "expert-down-dgrad", "expert-down-dgrad 1") or plain.startswith(
        "expert-kernel"
    )


def host_waits(case: Case) -> Numeric:
    """Times that the host waits for the device. [-]

    For the row counts of an exchange with split lists, of products that are launched one by one, of a grouped product
    that reads offsets on the host, and of a persistent kernel that does; a captured graph holds none.
    """
    total = _list_waits(case)
    total = total + sum(
        (n for one, n in case.ops() if one.op.host_sync and not isinstance(one.op.work, ExpertLeg)), 0.0
    )
    if case.choices.offsets == "host" or case.choices.metadata == "host":
        total = total + _routed_passes(case)
    return total * (not case.captured)


def _list_waits(case: Case) -> Numeric:
    """Waits for the split lists of an exchange. [-]"""
    lists = (n for one, n in case.ops() if one.op.host_sync and isinstance(one.op.work, ExpertLeg))
    return sum(lists, 0.0) * case.exchanges * (not case.captured)


def dynamic_shapes(case: Case) -> tuple[Numeric, Numeric]:
    """Operations whose sizes the host has to read, and those that a captured graph needs a bound for. [-]"""
    on_rows: Numeric = sum((n for priced, n in case.ops() if _on_rows(priced.op.segment, priced.op.name)), 0.0)
    if case.captured:
        return 0.0, on_rows
    products = case.plan.setting.products
    split = case.plan.setting.passes.host_syncs > 0
    if case.plan.strategy.expert_kernel != "separate":
        split = split and case.plan.strategy.expert_kernel != "fused"
    host = products.host_counts or case.choices.offsets == "host" or case.choices.metadata == "host"
    return on_rows * np.where(host, 1.0, case.exchanges * split), 0.0


def _on_rows(segment: str, name: str) -> bool:
    return segment == "experts" and not name.endswith(AGAIN)


def launched_kernels(case: Case) -> dict[str, Numeric]:
    """Launches by what they are for; a replayed kernel counts as the share of a launch that it costs. [-]"""
    plan, host = case.plan, case.plan.machine.host
    kernels: Numeric = 0.0
    beside: Numeric = 0.0
    for priced, times in case.ops():
        price = host.graph / host.launch if plan.captures(priced.op.scope) else 1.0
        kernels = kernels + times * price * launches(priced.op, plan.mesh)
        if priced.op.category in ("ep", "cp") and isinstance(priced.op.work, Message | ExpertLeg):
            beside = beside + times * RECORD_AND_WAIT * np.greater(launches(priced.op, plan.mesh), 0)
    strategy = plan.strategy
    overlapped = strategy.expert_waves > 1 or strategy.two_batch_overlap or strategy.overlap_ep or strategy.delay_wgrad
    sends = 4.0 * len(case.boundaries) * plan.num_micro_batches / case.ranks
    found = {
        "kernels": kernels,
        "copies of row counts": HOST_COPIES * _list_waits(case) + (host_waits(case) - _list_waits(case)),
        "stage actions": 2.0 * STAGE_CALLS * len(plan.stages) * plan.num_micro_batches / case.ranks * (case.ranks > 1),
        "sends and receives": sends * (1 + RECORD_AND_WAIT * strategy.overlap_p2p),
        "events of streams beside each other": beside * overlapped,
    }
    if strategy.activation_offload:
        found["copies to the host and back"] = _saved_tensors(case) * 2 * (1 + RECORD_AND_WAIT)
    return found


def _saved_tensors(case: Case) -> Numeric:
    """Tensors that are kept from forward to backward in a step. [-]"""
    return sum(times * len(block.block.saved) for block, times in case.uses)
