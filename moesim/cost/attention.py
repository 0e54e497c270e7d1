"""Time of the attention core."""

from dataclasses import dataclass

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Gpu, KernelConstants
from moesim.workload.ops import AttentionCore

QUERY_TILE = 128
WIDE = 500
"""Sum of the head dimensions from which tiles of keys shrink to fit the shared memory. [-]"""


@dataclass(frozen=True)
class Attention:
    """Compute, memory and fixed time of an attention kernel. [s]"""

    compute: Numeric
    memory: Numeric
    fixed: Numeric

    @property
    def time(self) -> Numeric:
        """The slower of both streams, after the fixed time. [s]"""
        return self.fixed + np.maximum(self.compute, self.memory)


def attention_time(work: AttentionCore, gpu: Gpu) -> Numeric:
    r"""Time of a fused attention kernel, forward or backward. [s]

    .. math::

        T = T_0 + \left(\left(\frac{N u (c + c_d + c_0)}{N_{SM}}\right)^q + (u (2 c + c_0))^q\right)^{1/q} f / r,
        \qquad u = \frac{2 \cdot 128 (d_{qk} + d_v + d_s)}{R e / N_{SM}}

    ``N`` tiles of 128 queries, ``batch x heads x ceil(s/128)`` of them; ``u`` is the time of one key against a tile,
    with the exponentials of the softmax worth ``d_s`` head dimensions, which is why narrow heads are slow. ``c`` is the
    mean number of keys of a query, ``c_d`` the masked half of the diagonal tiles, ``c_0`` a prologue in keys. The first
    term is the work spread over all SMs, the second the longest tile, which sees twice the mean under a causal mask. The backward does
    ``f`` = 2.5 times the forward products (it recomputes QK^T) at ``r`` of the forward rate. Long kernels slow down
    under the power limit as GEMMs do. Kernels of other releases, and those in FP8, run at a share of the calibrated rate.

    References
    ----------
    aiconfigurator-core-0.12, tables of context attention; cudnn-frontend-sdpa, backward and kernels of 2026
    """
    return attention_parts(work, gpu).time


def attention_parts(work: AttentionCore, gpu: Gpu) -> Attention:
    """Compute, memory and fixed time of an attention kernel. [s]"""
    constants = gpu.kernels
    width = work.query_dim + work.value_dim
    rate = gpu.rates["bf16"] * constants.attention_efficiency / gpu.num_sms
    flop = 2 * work.batch * work.heads * work.queries * work.columns * width
    decades = np.maximum(np.log10(np.maximum(flop, 1.0) / constants.gemm_power_onset), 0)
    key_time = 2 * QUERY_TILE * (width + constants.attention_softmax) / rate
    key_time = key_time * (1 + constants.attention_power_slope * decades)
    if width >= WIDE:
        key_time = key_time * constants.attention_wide_penalty
    if work.query_dim != work.value_dim:
        key_time = key_time * constants.attention_latent_penalty
    tiles = work.batch * work.heads * np.ceil(work.queries / QUERY_TILE)
    columns = work.columns + constants.attention_diagonal + constants.attention_prologue
    spread = tiles * columns * key_time / gpu.num_sms
    longest = ((1 if work.balanced else 2) * work.columns + constants.attention_prologue) * key_time
    norm = constants.attention_norm
    compute = (spread**norm + longest**norm) ** (1 / norm)
    compute = compute / _share(work, constants)
    if work.backward:
        compute = compute * constants.attention_backward_flop_ratio / constants.attention_backward_rate
    memory = work.hbm_bytes / (gpu.memory_bandwidth * constants.memory_efficiency)
    return Attention(compute, memory, constants.attention_fixed)


def _share(work: AttentionCore, constants: KernelConstants) -> Numeric:
    """Rate of the kind of kernel over that of the calibrated one. [-]"""
    if work.kernel == "flash1":
        return constants.attention_flash1
    if work.kernel == "flash2":
        return constants.attention_flash2_backward if work.backward else constants.attention_flash2_forward
    if work.kernel not in ("latest", "fp8"):
        return 1.0
    share, latent = constants.attention_latest, constants.attention_latest_latent
    if work.query_dim != work.value_dim and latent is not None:
        share = latent
    if work.kernel == "latest":
        return share
    forward, backward = constants.attention_fp8_speedup, constants.attention_fp8_backward_speedup
    return share * (backward if work.backward and backward is not None else forward)
