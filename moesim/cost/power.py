"""The clock that a GPU sustains under its power limit.

Tables of kernels are measured in bursts: a kernel that runs for some milliseconds finds the clock at its highest. A step
that lasts for seconds is held at the power limit, and the clock falls until what it draws fits.
"""

from __future__ import annotations

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu, Power
from moesim.workload.ops import AttentionCore, FusedExperts, Gemm, Work

TYPES = {
    "fp8": "fp8",
    "fp8-rowwise": "fp8",
    "fp8-blockwise": "fp8",
    "mxfp8": "fp8",
    "mxfp8-wgrad": "fp8",
    "nvfp4": "fp4",
}
"""Type of the operands of each kind of GEMM rate below 16 bits."""


def step_energy(works: list[tuple[Work, float]], gpu: Gpu, power: Power) -> Numeric:
    r"""Energy of operations beyond what the GPU draws idle. [J]

    .. math:: E = \sum_i n_i (\epsilon_{flop} W_i + \epsilon_{byte} Q_i)

    Parameters
    ----------
    works
        What is done, and how often.
    gpu
        For the slower of its tensor cores, which do not draw less energy for it.
    power
        Energies.

    References
    ----------
    choi2013-energy-roofline, eq. (4)
    """
    total: Numeric = 0.0
    for work, times in works:
        flop = work.flop * gpu.kernels.attention_backward_flop_ratio / 2 if _backward(work) else work.flop
        total = total + times * (_per_flop(work, power) * flop + power.per_byte * work.hbm_bytes)
    return total


def sustained_clock(energy: Numeric, seconds: Numeric, clocked: Numeric, power: Power) -> Numeric:
    r"""Clock that the power limit leaves, over the one that kernels are measured at. [-]

    .. math::

        T_P = \max\left(T, \frac{E}{P_{max} - P_{idle}}\right), \qquad \phi = \frac{C}{C + T_P - T}

    Energy of a FLOP is taken as constant: near the limit the voltage is close to its floor, and a lower clock saves power
    by doing less in a second.

    Parameters
    ----------
    energy
        E, of what is done in T. [J]
    seconds
        T, at the clock of the measured kernels. [s]
    clocked
        C, the part of it that follows the clock: products and attention. [s]
    power
        Limit and idle power.

    References
    ----------
    choi2013-energy-roofline, the power cap of section V
    """
    slower = np.maximum(energy / (power.limit - power.idle) - seconds, 0.0)
    return np.where(slower > 0, clocked / np.maximum(clocked + slower, 1e-30), 1.0)


def follows_clock(work: Work) -> bool:
    """Whether an operation takes longer at a lower clock: the tensor cores do, memory and links keep their own."""
    return isinstance(work, Gemm | AttentionCore | FusedExperts)


def _backward(work: Work) -> bool:
    return isinstance(work, AttentionCore) and work.backward


def _per_flop(work: Work, power: Power) -> Numeric:
    kind = work.rate if isinstance(work, Gemm | FusedExperts) else "bf16"
    return power.per_flop.get(TYPES.get(kind, "bf16"), power.per_flop["bf16"])
