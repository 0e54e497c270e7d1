"""From names in a scenario to a problem: specs resolved, defaults filled in and noted, ready for strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moesim.base.errors import Issue, SpecError
from moesim.constraints import Broken, stages, violations
from moesim.cost.certainty import NET, NODE
from moesim.cost.machine import Gpu, Host, KernelConstants, Links, Machine, Nccl, Residuals, Runtime, RuntimeMemory
from moesim.cost.plan import Plan
from moesim.rules import Candidate
from moesim.spec import library
from moesim.spec.calibration import DERIVED_SPREAD, CalibrationSpec
from moesim.spec.fabric import FabricSpec
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.load import ScenarioSpecs, load_scenario, load_specs, scenario_from_names
from moesim.spec.overrides import HARDWARE_PREFIXES, with_overrides
from moesim.spec.scenario import STRATEGY_FIELDS, MeasuredSpec, ScenarioSpec
from moesim.spec.software import SoftwareSpec
from moesim.spec.transport import TransportSpec
from moesim.workload.from_spec import model_from_spec
from moesim.workload.model import Model
from moesim.workload.setting import Fusion
from moesim.workload.strategy import COUNTS, Strategy

SAME = 0.01
"""Links whose rates differ by less are taken as those that a transport was fitted on. [-]"""


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
        same_run = self.measured is not None and firsts <= {*HARDWARE_PREFIXES, "overrides", "calibrations"}
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


def build_machine(specs: ScenarioSpecs) -> Machine:
    """Return the numbers of a machine, with the provenance of each."""
    gpu, node, nic, fabric, software = specs.gpu, specs.node, specs.nic, specs.fabric, specs.software
    used = {name: specs.transport(name) for name in library.names("transports")}
    provenance = dict(specs.provenance)
    for name, transport in used.items():
        provenance |= transport.provenance(f"transports.{name}")
    legs: dict[str, Residuals] = {}
    for transport in used.values():
        legs |= leg_residuals(transport, gpu, node, nic)
    return Machine(
        gpu=build_gpu(gpu),
        links=build_links(node, nic, fabric, software.runtime.nvls.value),
        host=Host(
            software.host.kernel_launch.value + software.host.framework_per_kernel.value,
            software.host.device_sync.value,
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
        transports={name: transport_constants(spec, gpu, node, nic, software) for name, spec in used.items()},
        provenance=provenance,
        residuals=build_residuals(gpu.name, specs.calibrations) | build_link_residuals(node.name, fabric.name) | legs,
    )


def build_gpu(gpu: GpuSpec) -> Gpu:
    """Return the numbers of a GPU."""
    kernels = {
        name: constant.value
        for name in KernelConstants.__dataclass_fields__
        if (constant := getattr(gpu.kernels, name)) is not None
    }
    return Gpu(
        gpu.name,
        gpu.num_sms.value,
        gpu.peak_flop_rate["bf16"].value,
        gemm_rates(gpu),
        gpu.memory_bandwidth.value,
        gpu.memory_capacity.value,
        KernelConstants(**kernels),
        gpu.l2_capacity.value,
    )


def build_residuals(gpu: str, own: Sequence[CalibrationSpec] = ()) -> dict[str, Residuals]:
    """Return how far the prices of each family of kernels were off, wider where they are another GPU's.

    The user's `own` calibrations stand in for those that are shipped.
    """
    used = library.calibrations_like(gpu) | {one.family: one for one in own}
    return {family: _residuals(one, one.gpu == gpu) for family, one in used.items()}


def build_link_residuals(node: str, fabric: str) -> dict[str, Residuals]:
    """Return how far the prices of collectives were off in a node and across nodes."""
    found: dict[str, Residuals] = {}
    for family, name, one in (
        (NODE, node, library.link_calibration("nodes", node)),
        (NET, fabric, library.link_calibration("fabrics", fabric)),
    ):
        if one is not None:
            found[family] = _residuals(one, one.gpu == name)
    return found


def leg_residuals(spec: TransportSpec, gpu: GpuSpec, node: NodeSpec, nic: NicSpec) -> dict[str, Residuals]:
    """Return how far the prices of the legs of a transport were off, wider on links that it was not fitted on."""
    one = library.link_calibration("transports", spec.name)
    if one is None:
        return {}
    own = all(abs(scale - 1) < SAME for scale in link_scales(spec, gpu, node, nic).values())
    return {f"transport-{spec.name}": _residuals(one, own)}


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
        fits={name: fit.value for name, fit in (links.fits | fabric.fits).items()},
        nccl=Nccl(ll128_net=nic.protocol == "infiniband"),
    )


def transport_constants(
    spec: TransportSpec, gpu: GpuSpec, node: NodeSpec, nic: NicSpec, software: SoftwareSpec | None = None
) -> dict[str, float]:
    """Return the constants of a transport; those fitted on other links grow with the links at hand."""
    values = {name: constant.value for name, constant in spec.constants.items() if not name.startswith("reference_")}
    told = software.constants.get(f"{spec.name}_num_sms") if software else None
    if told is not None:
        values["num_sms"] = told.value
    for word, scale in link_scales(spec, gpu, node, nic).items():
        values |= {name: value * scale for name, value in values.items() if name.endswith(word)}
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
