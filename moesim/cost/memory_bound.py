"""Time of kernels that only move bytes through HBM."""

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.cost.tiles import resident

OPENING_SHARPNESS = 4
"""Exponent of the transition from the opening of a kernel to its steady part. [-]"""


def traffic_time(hbm_bytes: Numeric, gpu: Gpu) -> Numeric:
    r"""Time of a memory-bound kernel. [s]

    .. math:: T = T_0 + \frac{b (1 - h + h / u) + s\, b / (1 + (b / o L)^4)^{1/4}}{e \beta},
              \qquad h = 1 / (1 + (b / c L)^8)

    ``T_0`` is the ramp: by Little's law the bandwidth that n bytes in flight reach is n over the latency, so a kernel
    of b bytes runs as if it started ``T_0`` late. What a share c of the L2 (L bytes) holds moves u times faster. The
    first o times L bytes take s longer than at the steady rate: until then a Blackwell moves 4.4 TB/s, and 7 TB/s after.

    Parameters
    ----------
    hbm_bytes
        Bytes read plus written, b. [B]
    gpu
        Bandwidth [B/s], reachable share e and ramp time T_0.

    Notes
    -----
    What the slow opening is was not published; the tables show it on every Blackwell (20 to 350 MB at one rate, from
    1.2 GB on at another) and hardly on Hopper.

    References
    ----------
    little1961; aiconfigurator-core-0.12, tables of quantisation kernels
    """
    constants = gpu.kernels
    held = resident(hbm_bytes, gpu, constants.memory_l2)
    moving = hbm_bytes * (1 - held + held / constants.memory_l2_speedup)
    past = hbm_bytes / (constants.memory_opening * gpu.l2_capacity)
    opening = hbm_bytes / (1 + past**OPENING_SHARPNESS) ** (1 / OPENING_SHARPNESS)
    moving = moving + constants.memory_opening_slowdown * opening
    return (hbm_bytes > 0) * constants.memory_fixed + moving / (gpu.memory_bandwidth * constants.memory_efficiency)
