"""GPUs, NICs and nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from moesim.spec.provenance import (
    Bandwidth,
    ByteEnergy,
    Bytes,
    Constant,
    Flop,
    FlopEnergy,
    FlopRate,
    Number,
    Positive,
    Seconds,
    Share,
    SpecModel,
    Watts,
)
from moesim.spec.validation import Count, NamedSpec


class KernelConstants(SpecModel):
    """Constants of the kernel cost forms on one GPU; `moesim.cost` says what each form does with them."""

    gemm_efficiency: Share
    gemm_prologue: Number
    gemm_power_slope: Number
    gemm_power_onset: Flop
    gemm_memory_efficiency: Share
    gemm_norm: Positive
    gemm_fixed: Seconds
    grouped_gemm_fixed: Seconds
    attention_efficiency: Positive
    attention_prologue: Number
    attention_diagonal: Number
    attention_fixed: Seconds
    attention_backward_flop_ratio: Positive
    attention_backward_rate: Positive
    memory_efficiency: Share
    memory_fixed: Seconds
    grouped_gemm_efficiency: Positive = Field(description="Rate of a grouped GEMM over the dense one. [-]")
    grouped_gemm_small_efficiency: Positive = Field(description="The same up to 128 rows a group. [-]")
    grouped_gemm_large_efficiency: Positive = Field(description="The same from 32,768 rows a group on. [-]")
    fp8_efficiency: Share | None = Field(None, description="gemm_efficiency for one FP8 scale a tensor. [-]")
    fp8_rowwise_efficiency: Share | None = Field(None, description="For FP8 scales by row and column. [-]")
    fp8_blockwise_efficiency: Share | None = Field(None, description="For FP8 scales of 1x128 and 128x128. [-]")
    mxfp8_efficiency: Share | None = Field(None, description="For MXFP8, one scale a 32 values. [-]")
    mxfp8_wgrad_rate: Positive | None = Field(None, description="Weight-gradient GEMM in MXFP8 over its forward. [-]")
    fp4_efficiency: Share | None = Field(None, description="For NVFP4. [-]")
    quantize_efficiency: Share | None = Field(None, description="Rate of a cast over that of a plain copy. [-]")
    gemm_small_tile_penalty: Positive | None = Field(None, description="Time of a 64x64 tile over its share. [-]")
    gemm_half_tile_penalty: Positive | None = Field(None, description="Time of a 128x64 tile over its share. [-]")
    gemm_square_tile_penalty: Positive | None = Field(None, description="Time of a 128x128 tile over its share. [-]")
    gemm_idle_gain: Number | None = Field(None, description="Share of a tile's time saved where no other SM works. [-]")
    gemm_power_depth: Number | None = Field(None, description="Decades of FLOP that a decade of k counts for. [-]")
    gemm_wave_smoothing: Number | None = Field(None, description="Part of a wave that need not be whole. [-]")
    gemm_split_fixed: Seconds | None = Field(None, description="What cutting k costs.")
    gemm_reduction: Number | None = Field(None, description="Traffic of partial sums over one FP32 result each. [-]")
    gemm_input_l2: Positive | None = Field(None, description="Share of the L2 that holds the left operand. [-]")
    gemm_input_speedup: Positive | None = Field(None, description="How much faster a held left operand moves. [-]")
    gemm_output_l2: Positive | None = Field(None, description="Share of the L2 that holds the result. [-]")
    gemm_output_speedup: Positive | None = Field(None, description="How much faster a held result moves. [-]")
    gemm_narrow_fixed: Seconds | None = Field(None, description="gemm_fixed for operands below 16 bits.")
    gemm_narrow_prologue: Number | None = Field(None, description="Time of a tile's prologue over that of 16 bits. [-]")
    grouped_gemm_prologue: Number | None = Field(None, description="Start and end of a tile, in units of k. [-]")
    grouped_gemm_norm: Positive | None = Field(None, description="p-norm that joins compute and memory. [-]")
    grouped_gemm_wave_smoothing: Number | None = Field(None, description="Part of a wave that need not be whole. [-]")
    grouped_gemm_memory_efficiency: Share | None = Field(None, description="Share of memory_bandwidth. [-]")
    grouped_gemm_small_tile_penalty: Positive | None = Field(
        None, description="Time of a 64x64 tile over its share. [-]"
    )
    grouped_gemm_half_tile_penalty: Positive | None = Field(None, description="The same of a 64x128 tile. [-]")
    gemm_first_library: Share | None = Field(
        None,
        description="Rate of 16-bit products in the first libraries for this architecture over the calibrated. [-]",
    )
    attention_flash1: Positive | None = Field(
        None, description="Rate of the first FlashAttention, or its kernel in Triton, over the calibrated kernel. [-]"
    )
    attention_flash2_forward: Positive | None = Field(
        None, description="Rate of FlashAttention 2 over that of the calibrated kernel. [-]"
    )
    attention_flash2_backward: Positive | None = Field(None, description="The same, backward. [-]")
    attention_latest: Positive | None = Field(
        None, description="Rate of the training kernels of 2026 over that of the calibrated kernel. [-]"
    )
    attention_latest_latent: Positive | None = Field(None, description="The same for heads of 192 and 128. [-]")
    attention_fp8_speedup: Positive | None = Field(None, description="Rate with FP8 products over that in BF16. [-]")
    attention_fp8_backward_speedup: Positive | None = Field(
        None, description="The same, backward; as forward where open. [-]"
    )
    attention_softmax: Number | None = Field(None, description="Cost of the softmax in head dimensions. [-]")
    attention_norm: Positive | None = Field(None, description="p-norm of spread work and the longest tile. [-]")
    attention_wide_penalty: Positive | None = Field(None, description="Time of heads of 256 over their share. [-]")
    attention_latent_penalty: Positive | None = Field(None, description="Time of 192/128 heads over their share. [-]")
    attention_power_slope: Number | None = Field(None, description="Slowdown per decade of FLOP above the onset. [-]")
    memory_l2: Positive | None = Field(None, description="Share of the L2 that holds what a kernel moves. [-]")
    memory_l2_speedup: Positive | None = Field(None, description="How much faster held bytes move. [-]")
    memory_opening: Positive | None = Field(None, description="Bytes of the slow opening over the L2. [-]")
    memory_opening_slowdown: Number | None = Field(None, description="Time lost in it over its own at full rate. [-]")
    pcie_efficiency: Share | None = Field(None, description="Share of pcie_bandwidth that a pinned copy reaches. [-]")
    pcie_duplex_efficiency: Share | None = Field(None, description="Of that, what is left beside one against it. [-]")


class Energies(SpecModel):
    """What a GPU draws; see `moesim.cost.power`."""

    idle_power: Watts = Field(description="Drawn with clocks up and nothing to do.")
    per_flop: dict[str, FlopEnergy] = Field(description="Of the tensor cores and what feeds them, by type of operand.")
    per_byte: ByteEnergy = Field(description="Of the device memory and what carries its bytes.")


class GpuSpec(NamedSpec):
    """One GPU: peaks of its datasheet, the capacity its driver reports, constants of its kernels."""

    architecture: str
    num_sms: Number
    peak_flop_rate: dict[str, FlopRate]
    memory_capacity: Bytes
    memory_bandwidth: Bandwidth
    l2_capacity: Bytes
    nvlink_bandwidth: Bandwidth
    pcie_bandwidth: Bandwidth
    power: Watts = Field(description="What the GPU may draw, its power limit.")
    energy: Energies | None = Field(None, description="What work costs in energy; without it no clock is lowered.")
    kernels: KernelConstants

    @model_validator(mode="after")
    def _has_sms(self) -> GpuSpec:
        if self.num_sms.value < 1 or self.num_sms.value % 1:
            raise ValueError(f"num_sms {self.num_sms.value:g} is no whole number of SMs; write 132")
        return self

    @model_validator(mode="after")
    def _may_work(self) -> GpuSpec:
        if self.energy is not None and self.power.value <= self.energy.idle_power.value:
            idle = self.energy.idle_power.value
            raise ValueError(
                f"power {self.power.value:g} W is no more than the {idle:g} W drawn idle; write for example 700 W"
            )
        return self

    @model_validator(mode="after")
    def _has_l2(self) -> GpuSpec:
        if not self.l2_capacity.value:
            raise ValueError("l2_capacity is 0; write for example 50 MB")
        return self

    @model_validator(mode="after")
    def _has_bf16(self) -> GpuSpec:
        if "bf16" not in self.peak_flop_rate:
            raise ValueError("peak_flop_rate has no bf16; MFU is reported against it")
        if self.energy is not None and "bf16" not in self.energy.per_flop:
            raise ValueError("energy.per_flop has no bf16; a type that is left out costs as much")
        return self


class NicSpec(NamedSpec):
    """One network port."""

    protocol: Literal["infiniband", "roce", "efa", "slingshot", "tcp"]
    bandwidth: Bandwidth
    usable_share: Number


class NodeLinks(SpecModel):
    """What collectives reach inside a node.

    Bandwidths are bus bandwidths per GPU and direction. The ``*_ramp`` times are what a message of 1 MB takes beyond
    latency and bandwidth; they grow with the square root of the size.
    """

    nvlink_usable_bandwidth: Bandwidth
    nvlink_latency: Seconds
    nvlink_base_latency: Seconds
    nvlink_ramp: Seconds
    nvls_bandwidth: Bandwidth
    nvls_latency: Seconds
    nvls_ramp: Seconds
    nvls_ramp_bytes: Bytes
    p2p_bandwidth: Bandwidth
    p2p_latency: Seconds
    alltoall_bandwidth: Bandwidth
    alltoall_latency: Seconds
    alltoall_ramp: Seconds
    collective_sms: Number | None = Field(None, description="SMs that the kernel of a collective occupies. [-]")
    fits: dict[str, Constant] = Field(
        default_factory=dict, description="Corrections of collectives in a node; see `moesim.cost.collectives.nccl`."
    )

    @property
    def wire_bandwidth(self) -> float:
        """Payload that the NVLinks of a GPU carry at most, as the best of what is measured over them. [B/s]"""
        return max(self.nvlink_usable_bandwidth.value, self.p2p_bandwidth.value, self.alltoall_bandwidth.value)


class NodeSpec(NamedSpec):
    """One host with its GPUs and NICs.

    ``nvlink_domain`` GPUs of a job reach each other over NVLink. Where a rack wires more than a job takes,
    ``nvlink_domain_wired`` tells how many.
    """

    gpu: str
    gpus_per_node: Count
    nvlink_domain: Count
    nvlink_domain_wired: Count | None = None
    nic: str
    nics_per_node: Count
    default_fabric: str
    cpu: str | None = None
    preferred: bool = Field(False, description="Taken where a run names the GPU and nothing else tells nodes apart.")
    links: NodeLinks
    source: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _domain_fits(self) -> NodeSpec:
        if self.nvlink_domain_wired is not None and self.nvlink_domain_wired < self.nvlink_domain:
            raise ValueError(f"nvlink_domain {self.nvlink_domain} is larger than what is wired; lower it")
        return self
