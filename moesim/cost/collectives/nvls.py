"""All-reduce with NVLink SHARP (NVLS): the switch adds, each GPU sends and receives its buffer once.

Inside one domain that is all; across domains a tree of the nodes takes over what the switches have added (NVLSTree).
"""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import floor_log2, never, pick, smaller
from moesim.cost.collectives.nccl import (
    MICROSECOND,
    NVLS_HOP,
    NVLSTREE_NET_HOP,
    SIMPLE_NET_HOP,
    corrected,
    enabled,
    lanes,
    rails,
)
from moesim.cost.machine import Group, Links

MIN_RANKS = 8
"""NCCL prefers the ring for four ranks and fewer: NVLS needs a head for each GPU of the switch."""
TWO_NODES, MORE_NODES = 57.7e9, 45.5e9
"""What a channel of NVLSTree carries over two nodes and over more. [B/s]"""


def nvls_all_reduce_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of an NVLS all-reduce inside one NVSwitch domain; infinite elsewhere. [s]

    .. math:: T = \lambda \alpha + \frac{2 (n - 1)}{n} \frac{S}{\epsilon \beta_{bus}} + \kappa \gamma (1 - e^{-S / S_0})

    ``nvls_bandwidth`` is the bus bandwidth as nccl-tests define it; the pipeline of the switch fills over ``S_0``.
    """
    if not links.nvls or not enabled(links, "nvls"):
        return never(size, group.size)
    bus = 2 * (group.size - 1) / group.size * size / links.nvls_bandwidth
    fits, name = links.fits, "all-reduce-nvls-simple-node"
    time = links.nvls_latency * fits.get(f"{name}-latency", 1.0) + bus / fits.get(f"{name}-bandwidth", 1.0)
    ramp = links.nvls_ramp * fits.get(f"{name}-ramp", 1.0)
    time = time + ramp * (1 - np.exp(-size / (links.nvls_ramp_bytes * fits.get(f"{name}-ramp-bytes", 1.0))))
    return pick((group.nodes > 1) | (group.size < MIN_RANKS), never(size, group.size), time)


def nvlstree_all_reduce_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of an NVLS tree all-reduce across NVSwitch domains; infinite inside one. [s]

    .. math:: T = \lambda (h_{nvls} + 2 \lfloor \log_2 N \rfloor h_{net})
              + \frac{2 (n - 1)}{n} \frac{S}{\epsilon \min(\beta_{nvls}, \beta_{nics}, C \beta_{channel})}

    Two nodes exchange over both directions of their NICs at once.

    References
    ----------
    nccl-2.30.7 (tuning.cc)
    """
    if not links.nvls or not enabled(links, "nvlstree"):
        return never(size, group.size)
    channel = lanes(group, links) * pick(group.nodes > 2, MORE_NODES, TWO_NODES)
    wires = rails(group, links) * pick(group.nodes > 2, 1.0, 2.0)
    bandwidth = smaller(smaller(links.nvls_bandwidth, wires), channel)
    hop = NVLSTREE_NET_HOP / SIMPLE_NET_HOP * links.nic_latency
    latency = NVLS_HOP * MICROSECOND + 2 * floor_log2(group.nodes) * hop
    bulk = 2 * (group.size - 1) / group.size * size / bandwidth
    time = corrected("all-reduce-nvlstree-simple", size, latency, bulk, group, links)
    return pick((group.nodes < 2) | (group.per_node < MIN_RANKS), never(size, group.size), time)


algorithms.add(
    "nvls-all-reduce",
    Algorithm("all-reduce", nvls_all_reduce_time, "nvls"),
    summary="All-reduce inside an NVSwitch domain, summed in the switch.",
    source="nccl-2.30.7",
)
algorithms.add(
    "nvlstree-all-reduce",
    Algorithm("all-reduce", nvlstree_all_reduce_time, "nvlstree"),
    summary="All-reduce summed in each NVSwitch, then along a tree of the nodes.",
    source="nccl-2.30.7",
)
