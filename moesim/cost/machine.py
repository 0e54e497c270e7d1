"""A machine as the prices see it: plain numbers in SI units, any of which may be an array.

Built from the specs by :func:`moesim.cost.from_spec.build_machine`; ``provenance`` keeps where each number comes from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from moesim.base.numeric import Numeric
from moesim.fabric.network import Network
from moesim.fabric.reach import FREE, LayoutReach, Reach
from moesim.spec.calibration import NORMAL_95
from moesim.spec.provenance import Sourced
from moesim.workload.mesh import Mesh
from moesim.workload.setting import Fusion

NVLINK_RATES = ("nvlink_bandwidth", "nvls_bandwidth", "p2p_bandwidth", "alltoall_bandwidth")
"""Rates of the links that follow NVLink."""


@dataclass(frozen=True)
class KernelConstants:
    """Parameters of the kernel price forms; see ``cost/gemm.py``, ``attention.py``, ``memory_bound.py``."""

    gemm_efficiency: Numeric
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
    gemm_small_tile_penalty: Numeric = 1.25
    gemm_half_tile_penalty: Numeric = 1.0
    gemm_square_tile_penalty: Numeric = 1.0
    gemm_idle_gain: Numeric = 0.4
    gemm_power_depth: Numeric = 0.3
    gemm_wave_smoothing: Numeric = 0.75
    gemm_split_fixed: Numeric = 2.9e-6
    gemm_reduction: Numeric = 2.3
    gemm_input_l2: Numeric = 0.75
    gemm_input_speedup: Numeric = 2.0
    gemm_output_l2: Numeric = 0.4
    gemm_output_speedup: Numeric = 1.3
    gemm_narrow_fixed: Numeric | None = None
    gemm_narrow_prologue: Numeric = 1.0
    grouped_gemm_prologue: Numeric = 100
    grouped_gemm_norm: Numeric = 2
    grouped_gemm_wave_smoothing: Numeric = 0.2
    grouped_gemm_memory_efficiency: Numeric = 0.9
    grouped_gemm_small_tile_penalty: Numeric = 1.6
    grouped_gemm_half_tile_penalty: Numeric = 1.2
    attention_softmax: Numeric = 160
    attention_norm: Numeric = 1.1
    attention_wide_penalty: Numeric = 1.1
    attention_latent_penalty: Numeric = 1.0
    attention_power_slope: Numeric = 0.09
    attention_flash1: Numeric = 1.0
    attention_flash2_forward: Numeric = 1.0
    attention_flash2_backward: Numeric = 1.0
    attention_latest: Numeric = 1.0
    attention_latest_latent: Numeric | None = None
    attention_fp8_speedup: Numeric = 1.0
    attention_fp8_backward_speedup: Numeric | None = None
    memory_l2: Numeric = 0.5
    memory_l2_speedup: Numeric = 1.5
    pcie_efficiency: Numeric = 0.84
    pcie_duplex_efficiency: Numeric = 0.8
    memory_opening: Numeric = 2.0
    memory_opening_slowdown: Numeric = 0.0


@dataclass(frozen=True)
class Power:
    """What a GPU may draw and what draws it. [W, W, J/FLOP by type of operand, J/B]"""

    limit: Numeric
    idle: Numeric
    per_flop: Mapping[str, Numeric]
    per_byte: Numeric


@dataclass(frozen=True)
class Gpu:
    """One GPU. Rates are dense; bandwidths per direction. [FLOP/s, B/s, B]

    ``rates``: peak of the GEMM form for each kind of operand, where ``gemm_efficiency`` applies. ``power``: None where
    nobody measured it.
    """

    name: str
    num_sms: Numeric
    bf16_flop_rate: Numeric
    rates: Mapping[str, Numeric]
    memory_bandwidth: Numeric
    memory_capacity: Numeric
    kernels: KernelConstants
    l2_capacity: Numeric = 50e6
    pcie_bandwidth: Numeric = 64e9
    power: Power | None = None


@dataclass(frozen=True)
class Nccl:
    """How NCCL is set up: what a user or an administrator switches.

    ``algorithms`` and ``protocols`` are what ``NCCL_ALGO`` and ``NCCL_PROTO`` leave on; None leaves all on. ``ll128_net``:
    LL128 between nodes, on by default on InfiniBand. ``collnet``: switches of the network add (SHARP). ``symmetric``: buffers
    are registered as symmetric memory. ``copy_engine``: all-gather and all-to-all by copy engines, without SMs.
    ``hierarchical``: all-to-all first inside, then across nodes.
    """

    algorithms: tuple[str, ...] | None = None
    protocols: tuple[str, ...] | None = None
    ll128_net: bool = False
    collnet: bool = False
    symmetric: bool = False
    copy_engine: bool = False
    hierarchical: bool = False


@dataclass(frozen=True)
class Links:
    """NVLink inside a domain, the NIC that each GPU has to itself, and the fabric between nodes.

    Bandwidths per direction and GPU [B/s]; latencies [s]. A ``*_ramp`` is what a message of 1 MB takes beyond latency
    and bandwidth; it grows with the square root of the size. [s] ``fits`` are corrections from measurements, see
    ``cost/collectives/nccl.py``; ``nccl`` what is switched on.
    ``collective_sms``: SMs that the kernel of a collective occupies. [-]
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
    nic_p2p_latency: Numeric
    nic_alltoall_base_latency: Numeric
    nic_alltoall_latency_per_node: Numeric
    nic_alltoall_efficiency: Numeric
    nic_alltoall_half_bytes: Numeric
    nvls: bool = True
    collective_sms: Numeric = 0.0
    fits: Mapping[str, Numeric] = field(default_factory=dict)
    nccl: Nccl = Nccl()


@dataclass(frozen=True)
class Host:
    """The CPU thread that launches kernels; ``graph``: for each kernel of a replayed CUDA graph. [s]

    ``call``: a launch inside an operation of the framework; ``chunk``: what the host does around a forward or a backward.
    [s] ``update_rate``: parameters that the CPUs of a node update in a second. [1/s]
    """

    launch: Numeric
    sync: Numeric
    graph: Numeric
    update_rate: Numeric = 4e9
    call: Numeric = 0.0
    chunk: Numeric = 0.0


@dataclass(frozen=True)
class Runtime:
    """What the software does beside the strategy.

    ``launches_*``: kernels that the host launches for one layer, forward and backward, nothing recomputed; None keeps
    the count of the modelled operations, each of which ``launches_per_operation`` multiplies in routed layers.
    ``upcast_gradients``: the optimizer works on FP32 copies of lower gradients.
    ``blocking_gathers``: nothing runs beside the gathers of sharded weights. ``shard_copies``: what a message of sharded
    state costs for each rank beside its transfer. [s] ``sequence_copies``: what tensor-parallel gathers bring and scatters take is copied, as collectives only know the first
    dimension. ``main_param_remainders``: main weights hold only the bits that BF16 weights lack. ``local_accumulation``:
    gradients of several micro-batches are added before they are reduced. ``grad_add``: gradients are added into their
    buffer by kernels that take so many times longer than plain ones; None where the GEMM adds them. ``grad_bucket``: those
    that are split go through a bucket of the runtime, beside what computes. ``whole_reduction``:
    gradients of a sharded optimizer are all-reduced, not scattered. ``bf16_layers``: layers at each end of the model that
    keep BF16 GEMMs. ``max_live_params``: parameters that sharded training gathers at a time, where not a whole layer.
    """

    fusion: Fusion = field(default_factory=Fusion)
    launches_per_moe_layer: float | None = None
    launches_per_dense_layer: float | None = None
    launches_per_operation: float = 1.0
    upcast_gradients: bool = True
    main_param_remainders: bool = False
    local_accumulation: bool = False
    grad_add: float | None = None
    grad_bucket: bool = False
    whole_reduction: bool = False
    bf16_layers: int = 0
    max_live_params: float | None = None
    sequence_copies: bool = False
    blocking_gathers: bool = False
    shard_copies: float = 0.0


@dataclass(frozen=True)
class RuntimeMemory:
    """What the runtime holds beside tensors. [B], slack as a share of the tensors [-]"""

    context: Numeric
    nccl_per_communicator: Numeric
    allocator_slack: Numeric
    extra: Numeric = 0.0


@dataclass(frozen=True)
class Group:
    """Ranks of one communicator: ``size`` in all, ``per_node`` of them in one NVLink domain.

    ``reach``: what the network between the domains leaves them of their NICs, and how far they are.
    """

    size: Numeric
    per_node: Numeric
    reach: Reach = FREE

    @cached_property
    def fitted(self) -> dict[tuple[str, str, int], tuple[object, Numeric]]:
        """Corrections of measurements for these ranks, each worked out once."""
        return {}

    @cached_property
    def nodes(self) -> Numeric:
        """NVLink domains that the group spans. [-]"""
        nodes = self.size / self.per_node
        return float(math.ceil(nodes)) if isinstance(nodes, float) else np.ceil(nodes)


@dataclass(frozen=True, eq=False)
class Placed:
    """Communicators of an order of the axes other than the usual one, and ranks between pipeline stages. [-]"""

    groups: Mapping[str, Group]
    stage_stride: Numeric


@dataclass(frozen=True)
class Residuals:
    """How far the prices of a family of operations were off on the rows that they were fitted to.

    ``quantiles``: 5, 50 and 95 % of the logarithm of predicted over measured time, by regime, ``all`` among them;
    ``covered``: smallest and largest value of each quantity; ``stretch``: how much wider to take them. [-]
    """

    quantiles: Mapping[str, tuple[float, float, float]]
    covered: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    stretch: float = 1.0

    def sigma(self, regime: str = "all") -> float:
        """Standard deviation of a normal distribution with the same 90 % interval. [-]"""
        low, _, high = self.quantiles[regime if regime in self.quantiles else "all"]
        return self.stretch * (high - low) / (2 * NORMAL_95)

    def bounds(self, regime: str = "all") -> tuple[float, float]:
        """Factors from a price to the ends of its 90 % interval. [-]"""
        low, middle, high = self.quantiles[regime if regime in self.quantiles else "all"]
        wide = [middle + self.stretch * (end - middle) for end in (low, high)]
        return float(np.exp(-wide[1])), float(np.exp(-wide[0]))


@dataclass(frozen=True)
class Machine:
    """Everything a price may ask of the hardware and the software under it.

    ``network``: what joins the NVLink domains; None where every rank has its NIC to itself. ``placed``: where the axes
    lie on the ranks, if not in the usual order. ``step_errors``: standard errors of the logarithm of a whole step beyond
    those of its prices, ``steps`` and what each field may move; empty where no steps were fitted. [-] ``protocol``: what
    the NICs speak.
    """

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
    residuals: Mapping[str, Residuals] = field(default_factory=dict)
    network: Network | None = None
    placed: Placed | None = None
    step_errors: Mapping[str, float] = field(default_factory=dict)
    protocol: str = "infiniband"

    def group(self, mesh: Mesh, axis: str) -> Group:
        """Return the communicator of an axis: neighbours ``stride`` ranks apart share a domain while they fit."""
        if self.placed is not None:
            return self.placed.groups[axis]
        size, stride = mesh.size(axis), mesh.stride(axis)
        per_node = np.clip(np.floor(self.nvlink_domain / stride), 1, size)
        return Group(size, per_node, self.reach(size, stride, per_node))

    def reach(self, size: Numeric, stride: Numeric, per_node: Numeric) -> Reach:
        """What the network leaves groups of so many ranks, all of which run at the same time.

        It depends on the wiring and on how NICs compare with links, not on how fast they are: where a constant is
        raised by a per cent, the shares stay.
        """
        if self.network is None or (self.network.free and self.network.incast_efficiency == 1):
            return FREE
        return LayoutReach(self.network, size, stride, per_node)
