"""Scenarios from files and names, with the specs they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from moesim.base.errors import Collector, Issue, SpecError, did_you_mean
from moesim.spec import library, own, steps
from moesim.spec.attention_kinds import with_attention
from moesim.spec.calibration import KERNEL_FAMILIES, CalibrationSpec
from moesim.spec.fabric import FabricSpec
from moesim.spec.fabric_names import oversubscribed, split_name
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.model import ModelSpec
from moesim.spec.overrides import apply_overrides
from moesim.spec.provenance import Sourced
from moesim.spec.scenario import ScenarioSpec
from moesim.spec.sms import unheld
from moesim.spec.software import SoftwareSpec
from moesim.spec.transport import TransportSpec
from moesim.spec.validation import NamedSpec, validate
from moesim.spec.yaml_file import Document, KeyPath, read_document

ASSUMED_SEQUENCE_LENGTH = 4096
ASSUMED_SEQUENCES_PER_GPU = 8


def load_scenario(path: str | Path) -> ScenarioSpec:
    """Return the scenario in a file, or the one of that name that comes with moesim.

    Raises a `SpecError` with every problem and its line.
    """
    file = Path(path)
    if not file.exists() and file.suffix not in (".yaml", ".yml") and len(file.parts) == 1:
        known = {name: kind for kind in ("scenarios", "runs") for name in library.names(kind)}
        known |= {alias: "scenarios" for one in library.summary("scenarios") for alias in one.aliases}
        if str(path) not in known:
            raise SpecError.single("", "", f"no scenario '{path}'", did_you_mean(str(path), known))
        file = library.file(known[str(path)], str(path))
    document = read_document(file)
    return validate(ScenarioSpec, document).bind(document, file.parent)


def scenario_from_names(model: str, cluster: str, software: str = "megatron-core") -> ScenarioSpec:
    """Return a scenario of a model on a cluster, ``NODE:count``, without a file.

    The batch is assumed: sequences of 4,096 tokens, eight of them a GPU. Its name lists both.
    """
    data: dict[str, Any] = {"schema": 1, "name": f"{model} on {cluster}", "model": model, "cluster": cluster}
    data |= {"software": software, "sequence_length": ASSUMED_SEQUENCE_LENGTH, "global_batch": 1}
    origins: dict[KeyPath, str] = {("model",): "--model", ("cluster",): "--cluster", ("software",): "--software"}
    document = Document("(options)", data, {}, origins)
    nodes = validate(ScenarioSpec, document).cluster
    try:
        gpus_per_node = library.get("nodes", nodes.node).gpus_per_node
    except SpecError as error:
        raise SpecError(_at("--cluster", "", error)) from None
    data["global_batch"] = ASSUMED_SEQUENCES_PER_GPU * gpus_per_node * nodes.count
    scenario = validate(ScenarioSpec, document).bind(document, None)
    return scenario.assume("sequence_length", "global_batch")


def scenario_from_data(data: dict[str, Any], where: str) -> ScenarioSpec:
    """Return the scenario in plain data, such as a row of a table; `where` names it in messages."""
    document = Document(where, data, {}, {})
    return validate(ScenarioSpec, document).bind(document, None)


@dataclass(frozen=True)
class ScenarioSpecs:
    """A scenario with everything it names, its overrides applied."""

    scenario: ScenarioSpec
    model: ModelSpec
    node: NodeSpec
    gpu: GpuSpec
    nic: NicSpec
    fabric: FabricSpec
    software: SoftwareSpec
    calibrations: tuple[CalibrationSpec, ...] = ()
    _transports: dict[str, TransportSpec] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_gpus(self) -> int:
        """GPUs that the job uses. [-]"""
        whole = self.node.gpus_per_node * self.scenario.cluster.count
        return self.scenario.cluster.gpus or whole

    def transport(self, name: str) -> TransportSpec:
        """Return the constants of an expert transport."""
        if name not in self._transports:
            laid = own.of(self.calibrations, name)
            spec = _spec(self.scenario, "transports", name, f"transports.{name}", TransportSpec, ("constants",), laid)
            self._transports[name] = spec
        return self._transports[name]

    @cached_property
    def provenance(self) -> dict[str, Sourced]:
        """Every sourced number of the machine and the software, by its path."""
        parts: dict[str, NamedSpec] = {"gpu": self.gpu, "nic": self.nic, "node": self.node}
        parts |= {"fabric": self.fabric, "software": self.software}
        return {path: number for name, spec in parts.items() for path, number in spec.provenance(name).items()}


def load_specs(scenario: ScenarioSpec) -> ScenarioSpecs:
    """Return everything a scenario names; raises a `SpecError` with every name that is unknown."""
    problems = Collector()

    def find(
        kind: str, name: str, prefix: str, type_: type[Any], path: str, laid: Sequence[CalibrationSpec] = ()
    ) -> Any:
        try:
            return _spec(scenario, kind, name, prefix, type_, laid=laid)
        except SpecError as error:
            problems.extend(_at(scenario.where(path), path, error))

    model = _model(scenario, problems)
    software = find("software", scenario.software, "software", SoftwareSpec, "software")
    node = find("nodes", scenario.cluster.node, "node", NodeSpec, "cluster.node")
    gpu = nic = fabric = None
    calibrations: tuple[CalibrationSpec, ...] = ()
    if node is not None:
        fabric_name = scenario.cluster.fabric or node.default_fabric
        plain, ratio = fabric_name, None
        try:
            plain, ratio = split_name(fabric_name)
        except SpecError as error:
            problems.extend(_at(scenario.where("cluster.fabric"), "cluster.fabric", error))
        calibrations = _calibrations(scenario, node, plain, problems)
        if links := own.of(calibrations, node.name):
            node = find("nodes", scenario.cluster.node, "node", NodeSpec, "cluster.node", links)
        kernels = [one for one in calibrations if one.family in KERNEL_FAMILIES]
        gpu = find("gpus", node.gpu, "gpu", GpuSpec, "cluster.node", kernels)
        nic = find("nics", node.nic, "nic", NicSpec, "cluster.node")
        fabric = find("fabrics", plain, "fabric", FabricSpec, "cluster.fabric", own.of(calibrations, plain))
        fabric = fabric and oversubscribed(fabric, ratio)
        if gpu is not None:
            problems.extend(dict.fromkeys(unheld(scenario, gpu)))
        used, whole = scenario.cluster.gpus, node.gpus_per_node * scenario.cluster.count
        if used is not None and not whole - node.gpus_per_node < used <= whole:
            what = f"{used} GPUs do not fill {scenario.cluster.count} nodes of {node.gpus_per_node}"
            fix = f"write {whole - node.gpus_per_node + 1} to {whole}, or leave it out"
            problems.extend(_at(scenario.where("cluster.gpus"), "cluster.gpus", SpecError.single("", "", what, fix)))
        software = software and _stepped(scenario, software, calibrations)
    problems.raise_if_any()
    # what is unknown is among the problems
    assert model is not None
    assert gpu is not None
    assert nic is not None
    assert fabric is not None
    return ScenarioSpecs(scenario, model, node, gpu, nic, fabric, software, calibrations)


def _model(scenario: ScenarioSpec, problems: Collector) -> ModelSpec | None:
    name = scenario.model
    try:
        if not name.endswith((".yaml", ".yml")):
            found = library.get("models", name)
        else:
            file = (scenario.folder or Path()) / name
            if not file.exists():
                raise SpecError.single(
                    "", "", f"there is no file '{file}'", "paths start at the folder of the scenario"
                )
            found = validate(ModelSpec, read_document(file))
    except SpecError as error:
        problems.extend(_at(scenario.where("model"), "model", error))
        return None
    try:
        return found if scenario.attention is None else with_attention(found, scenario.attention)
    except ValueError as error:
        problems.add(scenario.where("attention"), "attention", str(error))
        return None


def _spec(
    scenario: ScenarioSpec,
    kind: str,
    name: str,
    prefix: str,
    type_: type[Any],
    inner: tuple[str, ...] = (),
    laid: Sequence[CalibrationSpec] = (),
) -> Any:
    """Return a spec of the library, with calibrations laid over it and the overrides that begin with `prefix`."""
    changes = {
        path.removeprefix(prefix + "."): value
        for path, value in scenario.overrides.items()
        if path.startswith(prefix + ".")
    }
    if not changes and not laid:
        return library.get(kind, name)
    where = {path: scenario.where(f"overrides.{prefix}.{path}") for path in changes}
    document = library.document(kind, name)
    if laid:
        document = library.calibrated(document, laid) if kind == "gpus" else library.with_links(document, kind, laid)
    return validate(type_, apply_overrides(document, changes, where, inner))


def _stepped(scenario: ScenarioSpec, software: SoftwareSpec, calibrations: Sequence[CalibrationSpec]) -> SoftwareSpec:
    """Return the software with the calibration of steps, the user's own before the shipped one; what is set stays."""
    fixed = tuple(path.removeprefix("software.") for path in scenario.overrides if path.startswith("software."))
    return steps.laid(software, steps.used(calibrations), fixed)


def _calibrations(
    scenario: ScenarioSpec, node: NodeSpec, fabric: str, problems: Collector
) -> tuple[CalibrationSpec, ...]:
    """Return the user's own calibrations of the hardware and its transports; one issue for each that is not of it."""
    found: dict[tuple[str, str], CalibrationSpec] = {}
    belongs: dict[str, tuple[str, ...]] = dict.fromkeys(KERNEL_FAMILIES, (library.find("gpus", node.gpu),))
    belongs |= {own.COLLECTIVES: (node.name, fabric), own.TRANSPORT: tuple(library.names("transports"))}
    belongs[steps.STEPS] = (steps.SOFTWARE,)
    where = scenario.where("calibrations")
    folder = Path() if where.startswith("--") else scenario.folder or Path()
    for name in scenario.calibrations:
        try:
            one = own.own_calibration(folder / name, name, belongs)
            key = (one.family, "" if one.family in KERNEL_FAMILIES else one.gpu)
            if key in found:
                what = f"'{name}' is a second calibration of {' of '.join(part for part in key if part)}"
                raise SpecError.single("", "", what, "name one")
            found[key] = one
        except SpecError as error:
            problems.extend(_at(where, "calibrations", error))
    return tuple(found.values())


def _at(where: str, path: str, error: SpecError) -> list[Issue]:
    """Return the issues of an error; those that name no place get the one of the reference."""
    shown = "" if where.startswith("--") else path  # an option names its path itself
    return [issue if issue.where else Issue(where, shown, issue.what, issue.fix) for issue in error.issues]
