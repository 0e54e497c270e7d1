"""Paths of newer NCCL that registered buffers open: symmetric-memory kernels and copy engines. Off unless switched on."""

from functools import partial

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import never, pick, smaller
from moesim.cost.machine import Group, Links

BASE = 7.8e-6
"""Start of a symmetric-memory kernel on Hopper; 8.5-19.5 us on Blackwell. [s]"""
GIB_PER_GB = 2**30 / 1e9
PEAK_SHARE, MULTIMEM_SHARE = 320 * GIB_PER_GB / 362, 480 * GIB_PER_GB / 467
"""Peak of the kernels over the bus bandwidth of a ring, and of those that let the switch add over NVLS, on Hopper. [-]"""
COPY_BASE = 12e-6
"""Start of a collective by copy engines, a copy a peer on streams of its own. [s]"""


def symmetric_time(collective: str, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a symmetric-memory kernel inside one NVLink domain; infinite elsewhere. [s]

    .. math:: T = T_0 + \mathrm{softplus}(b / \beta - 1), \qquad \mathrm{softplus}(x) = \ln(1 + e^x) \text{ in us}

    with b the bytes on the bus: :math:`S (n - 1) / n`, for an all-reduce twice that or, added by the switch, once
    :math:`S (1 + 1/n)`.

    References
    ----------
    nccl-2.30.7 (sym_kernels.cc)
    """
    if not links.nccl.symmetric:
        return never(size, group.size)
    share = (group.size - 1) / group.size * size
    peak = PEAK_SHARE * links.nvlink_bandwidth
    seconds = share / peak
    if collective == "all-reduce":
        seconds = 2 * seconds
        if links.nvls:
            seconds = smaller(seconds, 2 * share / (MULTIMEM_SHARE * links.nvls_bandwidth))
    time = BASE + np.logaddexp(0.0, seconds * 1e6 - 1) * 1e-6
    return pick(group.nodes > 1, never(size, group.size), time)


def copy_engine_time(size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of an all-gather or all-to-all by copy engines inside one NVLink domain, without SMs. [s]

    .. math:: T = T_0 + \frac{n - 1}{n} \frac{S}{\beta_{p2p}}

    References
    ----------
    nccl-2.30.7 (copy-engine collectives)
    """
    if not links.nccl.copy_engine:
        return never(size, group.size)
    time = COPY_BASE + (group.size - 1) / group.size * size / links.p2p_bandwidth
    return pick(group.nodes > 1, never(size, group.size), time)


for _collective in ("all-gather", "reduce-scatter", "all-reduce"):
    algorithms.add(
        f"symmetric-{_collective}",
        Algorithm(_collective, partial(symmetric_time, _collective), "symmetric"),
        summary=f"{_collective.capitalize()} by kernels on symmetric memory, where buffers are registered.",
        source="nccl-2.30.7",
    )
for _collective in ("all-gather", "all-to-all"):
    algorithms.add(
        f"copy-engine-{_collective}",
        Algorithm(_collective, copy_engine_time, "copy-engine"),
        summary=f"{_collective.capitalize()} by copy engines, without SMs, where it is switched on.",
        source="nccl-2.30.7",
    )
