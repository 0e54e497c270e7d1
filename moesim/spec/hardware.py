"""GPUs, NICs and nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from moesim.spec.provenance import Bandwidth, Bytes, Flop, FlopRate, Number, Seconds, SpecModel, Watts
from moesim.spec.validation import Count, NamedSpec


class KernelConstants(SpecModel):
    """Constants of the kernel cost forms on one GPU; `moesim.cost` says what each form does with them."""

    gemm_efficiency: Number
    gemm_tile_penalty: Number
    gemm_prologue: Number
    gemm_power_slope: Number
    gemm_power_onset: Flop
    gemm_memory_efficiency: Number
    gemm_norm: Number
    gemm_fixed: Seconds
    grouped_gemm_fixed: Seconds
    attention_efficiency: Number
    attention_prologue: Number
    attention_diagonal: Number
    attention_fixed: Seconds
    attention_backward_flop_ratio: Number
    attention_backward_rate: Number
    memory_efficiency: Number
    memory_fixed: Seconds


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
    power: Watts
    kernels: KernelConstants

    @model_validator(mode="after")
    def _has_bf16(self) -> GpuSpec:
        if "bf16" not in self.peak_flop_rate:
            raise ValueError("peak_flop_rate has no bf16; MFU is reported against it")
        return self


class NicSpec(NamedSpec):
    """One network port."""

    protocol: Literal["infiniband", "roce", "efa"]
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


class NodeSpec(NamedSpec):
    """One host with its GPUs and NICs."""

    gpu: str
    gpus_per_node: Count
    nvlink_domain: Count
    nic: str
    nics_per_node: Count
    default_fabric: str
    cpu: str | None = None
    links: NodeLinks
    source: str | None = None
