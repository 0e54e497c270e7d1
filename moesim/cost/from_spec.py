"""From the specs of hardware and software to the machine that prices ask, with the provenance of each number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from moesim.cost.certainty import NET, NODE
from moesim.cost.machine import (
    NVLINK_RATES,
    Gpu,
    Host,
    KernelConstants,
    Links,
    Machine,
    Nccl,
    Power,
    Residuals,
    Runtime,
    RuntimeMemory,
)
from moesim.fabric.network import Network
from moesim.fabric.resolve import Parts, network
from moesim.spec import library, steps
from moesim.spec.calibration import DERIVED_SPREAD, KERNEL_FAMILIES, CalibrationSpec
from moesim.spec.fabric import FabricSpec
from moesim.spec.fabric_names import split_name
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.load import ScenarioSpecs
from moesim.spec.own import COLLECTIVES
from moesim.spec.own import of as own_of
from moesim.spec.provenance import Number
from moesim.spec.software import Flag, SoftwareSpec
from moesim.spec.software import Runtime as RuntimeSpec
from moesim.spec.transport import TransportSpec
from moesim.workload.setting import Fusion

SAME = 0.01
"""Links whose rates differ by less are taken as those that a transport was fitted on. [-]"""


def build_machine(specs: ScenarioSpecs) -> Machine:
    """Return the numbers of a machine, with the provenance of each; one for all scenarios of the same specs."""
    parts = (specs.gpu, specs.node, specs.nic, specs.fabric, specs.software)
    if specs.scenario.overrides or specs.calibrations:
        return _build(specs)
    key = ("machine", specs.num_gpus, *map(id, parts))
    _, machine = library.once(key, lambda: (parts, _build(specs)))  # the parts are kept, so that no other gets their id
    return machine


def _build(specs: ScenarioSpecs) -> Machine:
    gpu, node, nic, fabric, software = specs.gpu, specs.node, specs.nic, specs.fabric, specs.software
    used = {name: specs.transport(name) for name in library.names("transports")}
    provenance = dict(specs.provenance)
    for name, transport in used.items():
        provenance |= transport.provenance(f"transports.{name}")
    legs: dict[str, Residuals] = {}
    for transport in used.values():
        legs |= leg_residuals(transport, gpu, node, nic, own_of(specs.calibrations, transport.name))
    return Machine(
        gpu=sustained_gpu(build_gpu(gpu, software), software),
        links=sustained_links(build_links(node, nic, fabric, software.runtime.nvls.value), software),
        host=Host(
            software.host.kernel_launch.value + software.host.framework_per_kernel.value,
            software.host.device_sync.value,
            software.host.graph_launch.value,
            software.host.update_rate.value,
            software.host.library_call.value,
            software.host.chunk.value,
        ),
        runtime=build_runtime(software, gpu),
        memory=RuntimeMemory(
            software.memory.cuda_context.value,
            software.memory.nccl_per_communicator.value,
            software.memory.allocator_slack.value,
            software.runtime.extra_memory.value,
        ),
        nvlink_domain=float(node.nvlink_domain),
        gpus_per_node=node.gpus_per_node,
        num_gpus=specs.num_gpus,
        transports={name: transport_constants(spec, gpu, node, nic, software) for name, spec in used.items()},
        provenance=provenance,
        residuals=build_residuals(gpu.name, [one for one in specs.calibrations if one.family in KERNEL_FAMILIES])
        | build_link_residuals(node.name, fabric.name, specs.calibrations)
        | legs,
        network=specs_network(specs),
        step_errors=steps.spreads(steps.used(specs.calibrations), software.name, specs.model.moe is not None),
        protocol=nic.protocol,
    )


def sustained_gpu(gpu: Gpu, software: SoftwareSpec) -> Gpu:
    """Return a GPU with the rates that it keeps within a step of a software."""
    rates, kept = software.sustained, gpu.kernels
    return replace(
        gpu,
        rates={name: rate * rates.tensor.value for name, rate in gpu.rates.items()},
        kernels=replace(kept, memory_efficiency=kept.memory_efficiency * rates.memory.value),
    )


def sustained_links(links: Links, software: SoftwareSpec) -> Links:
    """Return links with the rates that messages keep within a step of a software."""
    nvlink, network = software.sustained.nvlink.value, software.sustained.network.value
    changed = {name: getattr(links, name) * nvlink for name in NVLINK_RATES}
    return replace(links, nic_bandwidth=links.nic_bandwidth * network, **changed)


def specs_network(specs: ScenarioSpecs) -> Network:
    """Return what joins the GPUs of a scenario."""
    protocol = library.get("protocols", specs.nic.protocol)
    return network(Parts(specs.fabric, specs.node, specs.nic, specs.gpu, protocol), specs.num_gpus)


def build_gpu(gpu: GpuSpec, software: SoftwareSpec | None = None) -> Gpu:
    """Return the numbers of a GPU, as fast as the library that the software multiplies with."""
    kernels = {
        name: constant.value
        for name in KernelConstants.__dataclass_fields__
        if (constant := getattr(gpu.kernels, name)) is not None
    }
    return Gpu(
        gpu.name,
        gpu.num_sms.value,
        gpu.peak_flop_rate["bf16"].value,
        _library_rates(gpu, software),
        gpu.memory_bandwidth.value,
        gpu.memory_capacity.value,
        KernelConstants(**kernels),
        gpu.l2_capacity.value,
        gpu.pcie_bandwidth.value,
        build_power(gpu),
    )


def _library_rates(gpu: GpuSpec, software: SoftwareSpec | None) -> dict[str, float]:
    """Peaks of the GEMM form, 16-bit ones lower where the software has one of the first libraries. [FLOP/s]"""
    rates = gemm_rates(gpu)
    library, share = software and software.runtime.gemm_library, gpu.kernels.gemm_first_library
    if library and library.value == "first" and share is not None:
        rates |= {name: rates[name] * share.value for name in ("bf16", "fp16") if name in rates}
    return rates


def build_power(gpu: GpuSpec) -> Power | None:
    """Return what a GPU draws, where it is known."""
    if gpu.energy is None:
        return None
    per_flop = {name: energy.value for name, energy in gpu.energy.per_flop.items()}
    return Power(gpu.power.value, gpu.energy.idle_power.value, per_flop, gpu.energy.per_byte.value)


def build_residuals(gpu: str, own: Sequence[CalibrationSpec] = ()) -> dict[str, Residuals]:
    """Return how far the prices of each family of kernels were off, wider where they are another GPU's.

    The user's `own` calibrations stand in for those that are shipped; a family that uses constants of theirs, and was
    fitted with others, is known as little as on another GPU.
    """
    used = library.calibrations_like(gpu) | {one.family: one for one in own}
    moved = {(one.family, name) for one in own for name in one.constants}
    shifted = {
        family
        for family, prefixes in BORROWED.items()
        if family not in {one.family for one in own}
        and any(other != family and name.startswith(prefixes) for other, name in moved)
    }
    return {family: _residuals(one, one.gpu == gpu and family not in shifted) for family, one in used.items()}


BORROWED = {"grouped-gemm": ("gemm_",), "attention": ("gemm_power_onset", "memory_efficiency")}
"""Constants of other families that prices of a family use, by the beginning of their names."""


def build_link_residuals(node: str, fabric: str, own: Sequence[CalibrationSpec] = ()) -> dict[str, Residuals]:
    """Return how far the prices of collectives were off in a node and across nodes.

    The user's `own` calibrations tell it for the collectives that they hold.
    """
    found: dict[str, Residuals] = {}
    for family, name, one in (
        (NODE, node, library.link_calibration("nodes", node)),
        (NET, fabric, library.link_calibration("fabrics", split_name(fabric)[0])),
    ):
        if one is not None:
            found[family] = _residuals(one, one.gpu == name)
        for other in own_of(own, name, COLLECTIVES):
            found[family] = joined(_residuals(other, True), found.get(family))
    return found


def joined(own: Residuals, shipped: Residuals | None) -> Residuals:
    """Return a user's residuals with those that are shipped for what he did not measure."""
    if shipped is None or set(shipped.quantiles) <= set(own.quantiles):
        return own
    part = 1 / shipped.stretch
    scaled = {name: (low * part, mid * part, high * part) for name, (low, mid, high) in own.quantiles.items()}
    covered = {
        name: (min(low, own.covered.get(name, (low, high))[0]), max(high, own.covered.get(name, (low, high))[1]))
        for name, (low, high) in shipped.covered.items()
    }
    return Residuals({**shipped.quantiles, **scaled}, covered, shipped.stretch)


def leg_residuals(
    spec: TransportSpec, gpu: GpuSpec, node: NodeSpec, nic: NicSpec, own: Sequence[CalibrationSpec] = ()
) -> dict[str, Residuals]:
    """Return how far the prices of the legs of a transport were off, wider on links that it was not fitted on."""
    one = library.link_calibration("transports", spec.name)
    if one is None:
        return {}
    same = all(abs(scale - 1) < SAME for scale in link_scales(spec, gpu, node, nic).values())
    known = _residuals(one, same)
    for other in own:
        known = joined(_residuals(other, True), known)
    return {f"transport-{spec.name}": known}


def _residuals(one: CalibrationSpec, own: bool) -> Residuals:
    quantiles = {name: (spread.q05, spread.q50, spread.q95) for name, spread in one.residuals.items()}
    return Residuals(quantiles, one.covered, 1.0 if own else DERIVED_SPREAD)


def build_links(node: NodeSpec, nic: NicSpec, fabric: FabricSpec, nvls: bool = True) -> Links:
    """Return the links of a node and its network, with the corrections that calibrations lay over them."""
    links = node.links
    return Links(
        nvlink_bandwidth=links.nvlink_usable_bandwidth.value,
        nvlink_base_latency=links.nvlink_base_latency.value,
        nvlink_latency=links.nvlink_latency.value,
        nvlink_ramp=links.nvlink_ramp.value,
        nvls_bandwidth=links.nvls_bandwidth.value,
        nvls_latency=links.nvls_latency.value,
        nvls_ramp=links.nvls_ramp.value,
        nvls_ramp_bytes=links.nvls_ramp_bytes.value,
        p2p_bandwidth=links.p2p_bandwidth.value,
        p2p_latency=links.p2p_latency.value,
        alltoall_bandwidth=links.alltoall_bandwidth.value,
        alltoall_latency=links.alltoall_latency.value,
        alltoall_ramp=links.alltoall_ramp.value,
        nic_bandwidth=nic.bandwidth.value * nic.usable_share.value * node.nics_per_node / node.gpus_per_node,
        nic_latency=fabric.latency.value,
        nic_base_latency=fabric.base_latency.value,
        nic_ring_efficiency=fabric.ring_efficiency.value,
        nic_p2p_latency=fabric.p2p_latency.value,
        nic_alltoall_base_latency=fabric.alltoall_base_latency.value,
        nic_alltoall_latency_per_node=fabric.alltoall_latency_per_node.value,
        nic_alltoall_efficiency=fabric.alltoall_efficiency.value,
        nic_alltoall_half_bytes=fabric.alltoall_half_bytes.value,
        nvls=nvls,
        collective_sms=links.collective_sms.value if links.collective_sms else 0.0,
        fits={name: fit.value for name, fit in (links.fits | fabric.fits).items()},
        nccl=Nccl(ll128_net=nic.protocol == "infiniband"),
    )


def transport_constants(
    spec: TransportSpec, gpu: GpuSpec, node: NodeSpec, nic: NicSpec, software: SoftwareSpec | None = None
) -> dict[str, float]:
    """Return the constants of a transport; those fitted on other links grow with the links at hand.

    Grown so, an NVLink rate ends at what the wires of the node carry.
    """
    values = {name: constant.value for name, constant in spec.constants.items() if not name.startswith("reference_")}
    told = software.constants.get(f"{spec.name}_num_sms") if software else None
    if told is not None:
        values["num_sms"] = told.value
    kept = software.sustained if software else None
    shares = {"nvlink_bandwidth": kept.nvlink.value, "rdma_bandwidth": kept.network.value} if kept else {}
    for word, scale in link_scales(spec, gpu, node, nic).items():
        most = node.links.wire_bandwidth if word == "nvlink_bandwidth" and abs(scale - 1) >= SAME else math.inf
        share = shares.get(word, 1.0)
        values |= {name: min(value * scale, most) * share for name, value in values.items() if name.endswith(word)}
    return values


def link_scales(spec: TransportSpec, gpu: GpuSpec, node: NodeSpec, nic: NicSpec) -> dict[str, float]:
    """Return how many times faster the links at hand are than those that a transport was fitted on, by name of a rate."""
    links = {
        "nvlink_bandwidth": ("reference_nvlink_bandwidth", gpu.nvlink_bandwidth.value),
        "rdma_bandwidth": ("reference_nic_bandwidth", nic.bandwidth.value * node.nics_per_node / node.gpus_per_node),
    }
    return {
        word: rate / spec.constants[reference].value
        for word, (reference, rate) in links.items()
        if reference in spec.constants
    }


EFFICIENCIES = {
    "fp8": ("fp8", "fp8_efficiency"),
    "fp8-rowwise": ("fp8", "fp8_rowwise_efficiency"),
    "fp8-blockwise": ("fp8", "fp8_blockwise_efficiency"),
    "mxfp8": ("fp8", "mxfp8_efficiency"),
    "nvfp4": ("fp4", "fp4_efficiency"),
}
"""Kinds of GEMM below 16 bits: the peak they count against, and the constant that says what they reach of it."""


def gemm_rates(gpu: GpuSpec) -> dict[str, float]:
    """Peak of the GEMM form for each kind of operand that the GPU knows. [FLOP/s]

    The form multiplies by ``gemm_efficiency``, so a kind with an efficiency of its own has its peak scaled by the ratio.
    """
    rates = {name: rate.value for name, rate in gpu.peak_flop_rate.items() if name in ("bf16", "fp16")}
    for name, (peak, constant) in EFFICIENCIES.items():
        efficiency = getattr(gpu.kernels, constant)
        if peak in gpu.peak_flop_rate and efficiency is not None:
            rates[name] = gpu.peak_flop_rate[peak].value * efficiency.value / gpu.kernels.gemm_efficiency.value
    if "mxfp8" in rates:
        wgrad = gpu.kernels.mxfp8_wgrad_rate
        rates["mxfp8-wgrad"] = rates["mxfp8"] * (wgrad.value if wgrad else 1.0)
    return rates


def _number(constant: Number | None) -> float | None:
    return None if constant is None else constant.value


def _shard_copies(runtime: RuntimeSpec) -> float:
    """What the messages of a layer's sharded state cost for each rank beside their transfer. [s]"""
    if runtime.shard_copy is None:
        return 0.0
    tensors = runtime.tensors_per_layer.value if runtime.tensors_per_layer else 1.0
    return tensors * runtime.shard_copy.value


def _attention_kernel(software: SoftwareSpec, gpu: GpuSpec) -> str:
    """How the attention core runs on a GPU; PyTorch's own choice is made by its architecture (torchtitan-1196)."""
    kernel = software.runtime.attention_kernel
    if kernel is None:
        return "fused"
    if kernel.value == "sdpa":
        return "latest" if gpu.architecture.startswith("blackwell") else "flash2"
    return kernel.value


def build_runtime(software: SoftwareSpec, gpu: GpuSpec) -> Runtime:
    """Return what the software does beside the strategy."""
    runtime = software.runtime
    fused = runtime.fused_cross_entropy.value or runtime.fused_linear_cross_entropy.value
    in_fp32 = runtime.logits_dtype.value == "fp32"
    logits = (4.0 if in_fp32 else 2.0) + (0.0 if fused else 4.0)  # unfused: an FP32 softmax beside them
    if runtime.logits_bytes is not None:
        logits = runtime.logits_bytes.value
    if runtime.fused_linear_cross_entropy.value:
        logits = 0.0
    return Runtime(
        fusion=Fusion(
            cross_entropy=fused,
            logits_bytes=logits,
            parallel_logits_bytes=_number(runtime.parallel_logits_bytes),
            compiled=runtime.compiled.value,
            latent_value_views=bool(runtime.latent_value_views and runtime.latent_value_views.value),
            operators=bool(runtime.operators and runtime.operators.value),
            attention=_attention_kernel(software, gpu),
            weights_in_combine=_on(runtime.weights_in_combine),
            bf16_expert_wgrad=_on(runtime.bf16_expert_wgrad),
            product_each_expert=_on(runtime.product_each_expert),
        ),
        launches_per_moe_layer=_number(runtime.launches_per_moe_layer),
        launches_per_operation=_number(runtime.launches_per_operation) or 1.0,
        launches_per_dense_layer=runtime.launches_per_dense_layer.value,
        main_param_remainders=runtime.main_param_remainders.value,
        local_accumulation=runtime.grad_accumulation.value == "local",
        grad_add=_grad_add(software),
        grad_bucket=_on(runtime.grad_bucket),
        whole_reduction=_on(runtime.whole_reduction),
        bf16_layers=int(runtime.bf16_layers.value),
        max_live_params=live.value if (live := software.constants.get("max_live_parameters")) else None,
        blocking_gathers=_on(runtime.blocking_gathers),
        shard_copies=_shard_copies(runtime),
        sequence_copies=_on(runtime.sequence_copies),
    )


def _on(flag: Flag | None) -> bool:
    """A flag that a spec may leave out."""
    return bool(flag and flag.value)


def _grad_add(software: SoftwareSpec) -> float | None:
    """Slowdown of the kernels that add gradients; None where the weight-gradient GEMM adds them. [-]"""
    runtime = software.runtime
    if runtime.grad_accumulation.value != "main-grad-add":
        return None
    return runtime.grad_add_slowdown.value if runtime.grad_add_slowdown else 1.0
