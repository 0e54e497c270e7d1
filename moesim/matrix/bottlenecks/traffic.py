"""What a step sends: token rows, stage boundaries, copies to the host, and what leaves the NVLink domain."""

from moesim.base.numeric import Numeric
from moesim.cost.chunk_graph import SM
from moesim.cost.offload import offloaded_bytes, offloads
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.matrix.counts import host_waits
from moesim.matrix.traffic import all_bytes, crossing_bytes, expert_bytes, expert_messages, link_seconds_of

SOURCE = "olmo-core-report"
COUNT_BYTES = 8.0
"""Bytes of a row count of one expert."""
CHECKPOINT_BYTES = 12.0
"""Bytes of a parameter in a checkpoint: FP32 main weight and two moments."""


def dispatch_traffic(case: Case) -> Terms:
    """Token rows that leave a rank, all legs of all layers. [B]"""
    return {"ep": expert_bytes(case)}


def boundary_traffic(case: Case) -> Terms:
    """Activations and gradients sent over stage boundaries. [B]"""
    return {"pp": case.read(all_bytes)["pp"]}


def host_traffic(case: Case) -> Terms:
    """Bytes over PCIe: activations out and back, row counts that the host reads, what a restart stages. [B]"""
    plan = case.plan
    found: Terms = {}
    moe = plan.model.moe
    experts = moe.num_experts if moe else 0
    found["row counts"] = host_waits(case) * experts * COUNT_BYTES
    if offloads(plan):
        moved: Numeric = sum(offloaded_bytes(plan, case.blocks), 0.0)
        found["activations and experts, out and back"] = 2 * moved * plan.num_micro_batches / case.ranks
    if case.choices.checkpoint == "global" and case.choices.restart == "other":
        found["chunks staged for another layout"] = CHECKPOINT_BYTES * plan.model.stored_params / plan.machine.num_gpus
    return found


def host_link(case: Case) -> Numeric:
    """Bytes that the host link of a rank could carry while its kernels run. [B]"""
    kernels: Numeric = sum((n * one.seconds for one, n in case.ops() if one.lane == SM), 0.0)
    return case.plan.machine.gpu.pcie_bandwidth * kernels


def inter_node_traffic(case: Case) -> Terms:
    """Bytes that leave the NVLink domain, by class. [B]"""
    return case.read(crossing_bytes)


bottlenecks.add(
    "dispatch-traffic",
    Bottleneck(
        "Expert dispatch/combine traffic",
        "traffic",
        "B",
        dispatch_traffic,
        8,
        ties=(expert_messages, link_seconds_of("ep")),
    ),
    summary="Token rows that leave a rank in dispatch and combine, forward, backward and repeated.",
    source=SOURCE,
)
bottlenecks.add(
    "boundary-traffic",
    Bottleneck(
        "Pipeline-boundary traffic",
        "traffic",
        "B",
        boundary_traffic,
        9,
        ties=(link_seconds_of("pp"),),
    ),
    summary="Activations and gradients that a rank sends over stage boundaries.",
    source=SOURCE,
)
bottlenecks.add(
    "host-traffic",
    Bottleneck("Host-device traffic", "traffic", "B", host_traffic, 10, scale=host_link),
    summary="Bytes between GPU and host memory.",
    source=SOURCE,
)
bottlenecks.add(
    "inter-node-traffic",
    Bottleneck("Inter-node traffic", "traffic", "B", inter_node_traffic, 11, by_class=True, absent="unasked"),
    summary="Bytes that leave the NVLink domain, of the classes that the method makes or changes.",
    source=SOURCE,
)
