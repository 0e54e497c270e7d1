"""Time of kernels that only move bytes through HBM."""

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu


def traffic_time(hbm_bytes: Numeric, gpu: Gpu) -> Numeric:
    r"""Time of a memory-bound kernel. [s]

    .. math:: T = T_0 + b / (e \beta)

    Parameters
    ----------
    hbm_bytes
        Bytes read plus written, b. [B]
    gpu
        Bandwidth [B/s], reachable share e and ramp time T_0.
    """
    constants = gpu.kernels
    moving = hbm_bytes / (gpu.memory_bandwidth * constants.memory_efficiency)
    return (hbm_bytes > 0) * constants.memory_fixed + moving
