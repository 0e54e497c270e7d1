"""What the host has to know, wait for and launch."""

from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.matrix.counts import dynamic_shapes, host_waits, launched_kernels

SOURCE = "olmo-core-report"


def shapes(case: Case) -> Terms:
    """Operations on sizes that depend on routing, where something beside the kernel itself has to settle them. [-]"""
    read, bound = dynamic_shapes(case)
    return {"sizes that the host reads": read, "sizes that a captured graph needs a bound for": bound}


def waits(case: Case) -> Terms:
    """Times that the host waits for the device. [-]"""
    return {"waits for row counts": host_waits(case)}


def launch_overhead(case: Case) -> Terms:
    """Time in which the host launches kernels, copies and messages of the micro-batches. [s]

    What is done once a step, reductions and the optimizer, is left out.
    """
    each = case.plan.machine.host.launch
    return {name: count * each for name, count in launched_kernels(case).items()}


bottlenecks.add(
    "dynamic-shapes",
    Bottleneck("Dynamic route/GEMM shapes", "host", "-", shapes, 18),
    summary="Operations whose sizes depend on routing and are read by the host, or bounded for a captured graph.",
    source=SOURCE,
)
bottlenecks.add(
    "host-syncs",
    Bottleneck("Device-host synchronization", "host", "-", waits, 19),
    summary="Times that the host waits for the device.",
    source=SOURCE,
)
bottlenecks.add(
    "launch-overhead",
    Bottleneck("CPU launch overhead", "host", "s", launch_overhead, 20),
    summary="Time in which the host launches the work of the micro-batches.",
    source=SOURCE,
)
