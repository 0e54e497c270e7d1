"""All-reduce by NVLink SHARP (NVLS): the switch adds, each GPU sends and receives its buffer once."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.machine import Group, Links

MIN_RANKS = 8
"""NCCL prefers the ring for four ranks and fewer: NVLS needs a head for each GPU of the switch."""


def nvls_all_reduce_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of an NVLS all-reduce inside one NVSwitch domain; infinite elsewhere. [s]

    .. math:: T = \alpha + \frac{2 (n - 1)}{n} \frac{S}{\beta_{bus}} + \gamma (1 - e^{-S / S_0})

    ``nvls_bandwidth`` is the bus bandwidth as nccl-tests define it; the pipeline of the switch fills over ``S_0``.
    """
    bus = 2 * (group.size - 1) / group.size
    time = links.nvls_latency + bus * size / links.nvls_bandwidth
    time = time + links.nvls_ramp * (1 - np.exp(-size / links.nvls_ramp_bytes))
    if not links.nvls:
        return np.full(np.shape(time), np.inf)
    return np.where((group.nodes > 1) | (group.size < MIN_RANKS), np.inf, time)


algorithms.add(
    "nvls-all-reduce",
    Algorithm("all-reduce", nvls_all_reduce_time),
    summary="All-reduce inside an NVSwitch domain, summed in the switch.",
    source="nccl-2.30.7",
)
