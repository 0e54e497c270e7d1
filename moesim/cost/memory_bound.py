"""Time of kernels that only move bytes through HBM."""

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.cost.tiles import resident


def traffic_time(hbm_bytes: Numeric, gpu: Gpu) -> Numeric:
    r"""Time of a memory-bound kernel. [s]

    .. math:: T = T_0 + \frac{b}{e \beta} (1 - h + h / u), \qquad h = 1 / (1 + (b / c L)^8)

    ``T_0`` is the ramp: by Little's law the bandwidth that n bytes in flight reach is n over the latency, so a kernel
    of b bytes runs as if it started ``T_0`` late. What a share c of the L2 (L bytes) holds moves u times faster.

    Parameters
    ----------
    hbm_bytes
        Bytes read plus written, b. [B]
    gpu
        Bandwidth [B/s], reachable share e and ramp time T_0.

    References
    ----------
    little1961; aiconfigurator-core-0.12, tables of quantisation kernels
    """
    constants = gpu.kernels
    held = resident(hbm_bytes, gpu, constants.memory_l2)
    moving = hbm_bytes * (1 - held + held / constants.memory_l2_speedup)
    return (hbm_bytes > 0) * constants.memory_fixed + moving / (gpu.memory_bandwidth * constants.memory_efficiency)
