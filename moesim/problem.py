"""From names in a scenario to a problem: specs resolved, defaults filled in and noted, ready for strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from moesim.base.errors import Issue, SpecError
from moesim.constraints import Broken, stages, violations
from moesim.cost.machine import Gpu, Host, KernelConstants, Links, Machine, Runtime, RuntimeMemory
from moesim.cost.plan import Plan
from moesim.rules import Candidate
from moesim.spec import library
from moesim.spec.hardware import GpuSpec
from moesim.spec.load import ScenarioSpecs, load_scenario, load_specs, scenario_from_names
from moesim.spec.overrides import HARDWARE_PREFIXES, with_overrides
from moesim.spec.scenario import STRATEGY_FIELDS, MeasuredSpec, ScenarioSpec
from moesim.spec.software import SoftwareSpec
from moesim.spec.transport import TransportSpec
from moesim.timeline.schedules import FILE_SUFFIX, find_schedule
from moesim.workload.from_spec import model_from_spec
from moesim.workload.model import Model
from moesim.workload.setting import Fusion
from moesim.workload.strategy import COUNTS, Strategy


@dataclass(frozen=True, repr=False)
class Problem:
    """A model to train on a machine: everything but the strategy, and the strategy that the scenario proposes.

    Attributes
    ----------
    name
        Name of the scenario.
    model, machine, software
        What to train, on what, with which framework.
    sequence_length, global_batch
        Tokens of a sequence; sequences of a step. [-]
    strategy
        The scenario's strategy, defaults filled in.
    assumed
        Fields that nobody gave and that a default stands in for.
    measured
        What was measured, where the scenario says so.
    scenario
        The scenario it came from, for messages.
    """

    name: str
    model: Model
    machine: Machine
    software: SoftwareSpec
    sequence_length: int
    global_batch: int
    strategy: Strategy
    assumed: tuple[str, ...]
    measured: MeasuredSpec | None
    scenario: ScenarioSpec

    def __repr__(self) -> str:
        machine = f"{self.machine.num_gpus} {self.machine.gpu.name}"
        batch = f"{self.global_batch} sequences of {self.sequence_length}"
        return f"Problem({self.name!r}: {self.model.name} on {machine}, {batch}, {self.software.name})"

    def candidate(self, strategy: Strategy) -> Candidate:
        """Set a strategy beside the problem."""
        return Candidate(
            strategy,
            self.model,
            self.software,
            self.machine.num_gpus,
            self.sequence_length,
            self.global_batch,
            frozenset(self.machine.gpu.rates),
        )

    def check(self, strategy: Strategy | None = None) -> list[Broken]:
        """Every rule that the strategy breaks."""
        return violations(self.candidate(strategy or self.strategy))

    def plan(self, strategy: Strategy | None = None) -> Plan:
        """Resolve a strategy; a :class:`SpecError` with one issue per broken rule where it is not legal."""
        strategy = strategy or self.strategy
        broken = self.check(strategy)
        if broken:
            raise SpecError(self._issue(one) for one in broken)
        candidate = self.candidate(strategy)
        warmup = self.software.constants.get("overlap_ep_extra_warmup")
        extra = int(warmup.value) if warmup and strategy.overlap_ep else 0
        return Plan(
            self.model,
            self.machine,
            strategy,
            stages(candidate),
            self.sequence_length,
            int(candidate.num_micro_batches),
            extra,
            strategy.shape,
        )

    def with_changes(self, changes: Mapping[str, Any], where: str = "--set") -> Problem:
        """Return the problem of the changed scenario; ``{"ep": 16, "cluster.count": 64}``.

        What was measured stays beside it while the run is the same: where only fields that nobody gave, or numbers of
        the machine, are set.
        """
        changed = resolve(with_overrides(self.scenario, changes, where))
        firsts = {path.partition(".")[0] for path in changes if f"strategy.{path.split('.')[-1]}" not in self.assumed}
        same_run = self.measured is not None and firsts <= {*HARDWARE_PREFIXES, "overrides"}
        return changed if same_run or "measured" in firsts else replace(changed, measured=None)

    def _issue(self, broken: Broken) -> Issue:
        paths = [f"strategy.{name}" if name in STRATEGY_FIELDS else name for name in broken.fields] or ["strategy"]
        changed = (path for path in paths if self.scenario.where(path).startswith("--"))
        path = next(changed, paths[0])  # what an option has changed is blamed before what stands in the file
        where = self.scenario.where(path)
        violation = broken.violation
        legal = violation.legal
        fix = f"legal: {legal}" if legal and not legal.startswith(("did", "known")) else legal
        shown = "" if where.startswith("--") else path  # an option names its path itself
        return Issue(where, shown, f"{violation.message} [{violation.rule}]", fix)


def load(path: str | Path) -> Problem:
    """Return the problem in a scenario file, or the shipped scenario of that name.

    Raises
    ------
    SpecError
        With one issue for each thing that is wrong, with file and line.
    """
    return resolve(load_scenario(path))


def from_names(model: str, cluster: str, software: str = "megatron-core") -> Problem:
    """Return a problem without a file: a model and ``NODE:count``."""
    return resolve(scenario_from_names(model, cluster, software))


def resolve(scenario: ScenarioSpec) -> Problem:
    """Look up what a scenario names and fill in what it leaves out."""
    specs = load_specs(scenario)
    model = model_from_spec(specs.model)
    strategy, assumed = build_strategy(specs, model)
    machine = build_machine(specs)
    return Problem(
        scenario.name,
        model,
        machine,
        specs.software,
        scenario.sequence_length,
        scenario.global_batch,
        strategy,
        (*scenario.assumed, *assumed),
        scenario.measured,
        scenario,
    )


def build_strategy(specs: ScenarioSpecs, model: Model) -> tuple[Strategy, tuple[str, ...]]:
    """Return the strategy of a scenario and the fields that a default of the software stands in for.

    Defaults are taken in the order of the software spec: a condition sees what is given and the defaults before it.
    Degrees that are left out are 1, which nobody has to be told.
    """
    scenario, software = specs.scenario, specs.software
    given = scenario.strategy.given
    if given.get("schedule", "").endswith(FILE_SUFFIX):
        given["schedule"] = schedule_file(scenario)
    strategy, assumed = Strategy(**given), []
    for name, default in software.defaults.items():
        if name in given:
            continue
        setting = (model, software, specs.num_gpus, scenario.sequence_length, scenario.global_batch)
        value = default.resolve(Candidate(strategy, *setting).values())
        strategy = strategy.replace(**{name: tuple(value) if isinstance(value, list) else value})
        if name not in COUNTS and (name, value) != ("schedule", "none"):
            assumed.append(f"strategy.{name}")
    return strategy, tuple(assumed)


def schedule_file(scenario: ScenarioSpec) -> str:
    """Return the path of a schedule's file: from the folder of the scenario, or of the user where an option names it."""
    name, where = str(scenario.strategy.schedule), scenario.where("strategy.schedule")
    path = name if where.startswith("--") else str((scenario.folder or Path()) / name)
    find_schedule(path)
    return path


def build_machine(specs: ScenarioSpecs) -> Machine:
    """Return the numbers of a machine, with the provenance of each."""
    gpu, node, nic, fabric, software = specs.gpu, specs.node, specs.nic, specs.fabric, specs.software
    kernels = {
        name: constant.value
        for name in KernelConstants.__dataclass_fields__
        if (constant := getattr(gpu.kernels, name)) is not None
    }
    links = node.links
    used = {name: specs.transport(name) for name in library.names("transports")}
    provenance = dict(specs.provenance)
    for name, transport in used.items():
        provenance |= transport.provenance(f"transports.{name}")
    return Machine(
        gpu=Gpu(
            gpu.name,
            gpu.num_sms.value,
            gpu.peak_flop_rate["bf16"].value,
            gemm_rates(gpu),
            gpu.memory_bandwidth.value,
            gpu.memory_capacity.value,
            KernelConstants(**kernels),
        ),
        links=Links(
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
            nic_ring_node_latency=fabric.ring_node_latency.value,
            nic_p2p_latency=fabric.p2p_latency.value,
            nic_alltoall_base_latency=fabric.alltoall_base_latency.value,
            nic_alltoall_latency_per_node=fabric.alltoall_latency_per_node.value,
            nic_alltoall_efficiency=fabric.alltoall_efficiency.value,
            nic_alltoall_half_bytes=fabric.alltoall_half_bytes.value,
            nvls=software.runtime.nvls.value,
        ),
        host=Host(
            software.host.kernel_launch.value + software.host.framework_per_kernel.value,
            software.host.device_sync.value,
            software.host.graph_launch.value,
        ),
        runtime=build_runtime(software),
        memory=RuntimeMemory(
            software.memory.cuda_context.value,
            software.memory.nccl_per_communicator.value,
            software.memory.allocator_slack.value,
            software.runtime.extra_memory.value,
        ),
        nvlink_domain=float(node.nvlink_domain),
        gpus_per_node=node.gpus_per_node,
        num_gpus=specs.num_gpus,
        transports={name: transport_constants(spec, specs) for name, spec in used.items()},
        provenance=provenance,
    )


def transport_constants(spec: TransportSpec, specs: ScenarioSpecs) -> dict[str, float]:
    """Return the constants of a transport; those fitted on other links grow with the links at hand."""
    values = {name: constant.value for name, constant in spec.constants.items()}
    told = specs.software.constants.get(f"{spec.name}_num_sms")
    if told is not None:
        values["num_sms"] = told.value
    nic = specs.nic.bandwidth.value * specs.node.nics_per_node / specs.node.gpus_per_node
    scales = {
        "nvlink_bandwidth": specs.gpu.nvlink_bandwidth.value / values.pop("reference_nvlink_bandwidth", np.inf),
        "rdma_bandwidth": nic / values.pop("reference_nic_bandwidth", np.inf),
    }
    for name in values:
        scale = next((factor for word, factor in scales.items() if name.endswith(word)), 0.0)
        values[name] *= scale or 1.0
    return values


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


def build_runtime(software: SoftwareSpec) -> Runtime:
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
            compiled=runtime.compiled.value,
            weights_in_combine=bool(runtime.weights_in_combine and runtime.weights_in_combine.value),
        ),
        launches_per_moe_layer=runtime.launches_per_moe_layer.value,
        launches_per_dense_layer=runtime.launches_per_dense_layer.value,
        main_param_remainders=runtime.main_param_remainders.value,
        local_accumulation=runtime.grad_accumulation.value == "local",
        bf16_layers=int(runtime.bf16_layers.value),
        max_live_params=live.value if (live := software.constants.get("max_live_parameters")) else None,
    )
