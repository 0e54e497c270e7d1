"""Time of the attention core."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu
from moesim.workload.ops import AttentionCore

QUERY_TILE = 128


def attention_time(work: AttentionCore, gpu: Gpu) -> Numeric:
    r"""Time of a fused attention kernel, forward or backward. [s]

    .. math:: T = T_0 + w \, \frac{2 \cdot 128 (d_{qk} + d_v)(c + c_0)}{R e / N_{SM}} \, f / r

    Tiles of 128 queries, ``batch x heads x ceil(s/128)`` of them, over ``w`` waves of the SMs (whole waves while there
    are fewer than four); ``c`` is the mean number of keys of a query and ``c_0`` a
    prologue and the masked half of the diagonal tiles, in keys. The backward does
    ``f`` = 2.5 times the forward products (it recomputes QK^T) at ``r`` of the forward rate.

    References
    ----------
    aiconfigurator-core-0.12; the form is described in the GPU spec.
    """
    constants = gpu.kernels
    units = work.batch * work.heads * np.ceil(work.queries / QUERY_TILE)
    waves = units / gpu.num_sms
    waves = np.where(waves < 4, np.ceil(waves), waves)
    columns = work.columns + constants.attention_diagonal + constants.attention_prologue
    rate = gpu.rates["bf16"] * constants.attention_efficiency / gpu.num_sms
    forward = waves * 2 * QUERY_TILE * (work.query_dim + work.value_dim) * columns / rate
    stretch = constants.attention_backward_flop_ratio / constants.attention_backward_rate if work.backward else 1.0
    memory = work.hbm_bytes / (gpu.memory_bandwidth * constants.memory_efficiency)
    return constants.attention_fixed + np.maximum(forward * stretch, memory)
