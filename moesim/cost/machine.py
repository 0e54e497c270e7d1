"""A machine as the prices see it: plain numbers in SI units, any of which may be an array.

Built from the specs by :func:`moesim.problem.build_machine`; ``provenance`` keeps where each number comes from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from moesim.base.numeric import Numeric
from moesim.spec.provenance import Sourced
from moesim.workload.mesh import Mesh
from moesim.workload.setting import Fusion


@dataclass(frozen=True)
class KernelConstants:
    """Parameters of the kernel price forms; see ``cost/gemm.py``, ``attention.py``, ``memory_bound.py``."""

    gemm_efficiency: Numeric
    gemm_tile_penalty: Numeric
    gemm_prologue: Numeric
    gemm_power_slope: Numeric
    gemm_power_onset: Numeric
    gemm_memory_efficiency: Numeric
    gemm_norm: Numeric
    gemm_fixed: Numeric
    grouped_gemm_fixed: Numeric
    attention_efficiency: Numeric
    attention_prologue: Numeric
    attention_diagonal: Numeric
    attention_fixed: Numeric
    attention_backward_flop_ratio: Numeric
    attention_backward_rate: Numeric
    memory_efficiency: Numeric
    memory_fixed: Numeric
    grouped_gemm_efficiency: Numeric = 1.0
    grouped_gemm_small_efficiency: Numeric = 1.0
    grouped_gemm_large_efficiency: Numeric = 1.0
    quantize_efficiency: Numeric = 0.9


@dataclass(frozen=True)
class Gpu:
    """One GPU. Rates are dense; bandwidths per direction. [FLOP/s, B/s, B]

    ``rates``: peak of the GEMM form for each kind of operand, where ``gemm_efficiency`` applies.
    """

    name: str
    num_sms: Numeric
    bf16_flop_rate: Numeric
    rates: Mapping[str, Numeric]
    memory_bandwidth: Numeric
    memory_capacity: Numeric
    kernels: KernelConstants


@dataclass(frozen=True)
class Links:
    """NVLink inside a domain, the NIC that each GPU has to itself, and the fabric between nodes.

    Bandwidths per direction and GPU [B/s]; latencies [s]. A ``*_ramp`` is what a message of 1 MB takes beyond latency
    and bandwidth; it grows with the square root of the size. [s]
    """

    nvlink_bandwidth: Numeric
    nvlink_base_latency: Numeric
    nvlink_latency: Numeric
    nvlink_ramp: Numeric
    nvls_bandwidth: Numeric
    nvls_latency: Numeric
    nvls_ramp: Numeric
    nvls_ramp_bytes: Numeric
    p2p_bandwidth: Numeric
    p2p_latency: Numeric
    alltoall_bandwidth: Numeric
    alltoall_latency: Numeric
    alltoall_ramp: Numeric
    nic_bandwidth: Numeric
    nic_latency: Numeric
    nic_base_latency: Numeric
    nic_ring_efficiency: Numeric
    nic_ring_node_latency: Numeric
    nic_p2p_latency: Numeric
    nic_alltoall_base_latency: Numeric
    nic_alltoall_latency_per_node: Numeric
    nic_alltoall_efficiency: Numeric
    nic_alltoall_half_bytes: Numeric
    nvls: bool = True


@dataclass(frozen=True)
class Host:
    """The CPU thread that launches kernels; ``graph``: for each kernel of a replayed CUDA graph. [s]"""

    launch: Numeric
    sync: Numeric
    graph: Numeric


@dataclass(frozen=True)
class Runtime:
    """What the software does beside the strategy.

    ``launches_*``: kernels that the host launches for one layer, forward and backward, nothing recomputed; None keeps
    the count of the modelled operations. ``upcast_gradients``: the optimizer works on FP32 copies of lower gradients.
    ``main_param_remainders``: main weights hold only the bits that BF16 weights lack. ``local_accumulation``: gradients
    of several micro-batches are added before they are reduced. ``bf16_layers``: layers at each end of the model that
    keep BF16 GEMMs. ``max_live_params``: parameters that sharded training gathers at a time, where not a whole layer.
    """

    fusion: Fusion = field(default_factory=Fusion)
    launches_per_moe_layer: float | None = None
    launches_per_dense_layer: float | None = None
    upcast_gradients: bool = True
    main_param_remainders: bool = False
    local_accumulation: bool = False
    bf16_layers: int = 0
    max_live_params: float | None = None


@dataclass(frozen=True)
class RuntimeMemory:
    """What the runtime holds beside tensors. [B], slack as a share of the tensors [-]"""

    context: Numeric
    nccl_per_communicator: Numeric
    allocator_slack: Numeric
    extra: Numeric = 0.0


@dataclass(frozen=True)
class Group:
    """Ranks of one communicator: ``size`` in all, ``per_node`` of them in one NVLink domain."""

    size: Numeric
    per_node: Numeric

    @property
    def nodes(self) -> Numeric:
        """NVLink domains that the group spans. [-]"""
        return np.ceil(self.size / self.per_node)


@dataclass(frozen=True)
class Machine:
    """Everything a price may ask of the hardware and the software under it."""

    gpu: Gpu
    links: Links
    host: Host
    memory: RuntimeMemory
    runtime: Runtime
    nvlink_domain: Numeric
    gpus_per_node: int
    num_gpus: int
    transports: Mapping[str, Mapping[str, Numeric]] = field(default_factory=dict)
    provenance: Mapping[str, Sourced] = field(default_factory=dict)

    def group(self, mesh: Mesh, axis: str) -> Group:
        """Return the communicator of an axis: neighbours ``stride`` ranks apart share a domain while they fit."""
        size, stride = mesh.size(axis), mesh.stride(axis)
        per_node = np.clip(np.floor(self.nvlink_domain / stride), 1, size)
        return Group(size, per_node)
