"""From names in a scenario to a problem: specs resolved, defaults filled in and noted, ready for strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from moesim.base.errors import Issue, SpecError
from moesim.constraints import Broken, stages, violations
from moesim.cost.from_spec import build_machine
from moesim.cost.machine import Machine
from moesim.cost.plan import Plan
from moesim.cost.slow import Slow
from moesim.rules import Candidate
from moesim.spec.factors import of_the_transport, without_factors
from moesim.spec.load import ScenarioSpecs, load_scenario, load_specs, scenario_from_names
from moesim.spec.overrides import COMM_SMS, HARDWARE_PREFIXES, MACHINE_PREFIXES, sm_driven, with_overrides
from moesim.spec.scenario import STRATEGY_FIELDS, MeasuredSpec, ScenarioSpec
from moesim.spec.software import SoftwareSpec
from moesim.timeline.schedules import FILE_SUFFIX, find_schedule
from moesim.workload.documents import Documents
from moesim.workload.from_spec import documents_from_spec, model_from_spec
from moesim.workload.model import Model
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
    slow
        What a fault slows down, for the scenario's own strategy.
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
    slow: Slow | None = None

    def __repr__(self) -> str:
        machine = f"{self.machine.num_gpus} {self.machine.gpu.name}"
        batch = f"{self.global_batch} sequences of {self.sequence_length}"
        return f"Problem({self.name!r}: {self.model.name} on {machine}, {batch}, {self.software.name})"

    @property
    def documents(self) -> Documents | None:
        """Lengths of the documents that are packed into a sequence; None where a sequence is one document."""
        spec = self.scenario.documents
        return documents_from_spec(spec) if spec is not None else None

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
            self.machine.nvlink_domain,
            self.machine.protocol,
        )

    def check(self, strategy: Strategy | None = None) -> list[Broken]:
        """Every rule that the strategy breaks."""
        return violations(self.candidate(strategy or self.strategy))

    def plan(self, strategy: Strategy | None = None) -> Plan:
        """Resolve a strategy; a :class:`SpecError` with one issue per broken rule where it is not legal."""
        if strategy is None or (not strategy.shape and strategy == self.strategy):
            return self._own_plan
        return self._plan(strategy)

    @cached_property
    def _own_plan(self) -> Plan:
        return self._plan(self.strategy)

    def _plan(self, strategy: Strategy) -> Plan:
        if self.slow is not None and strategy != self.strategy:
            what = "a fault is priced with the strategy that the problem was made with"
            raise SpecError.single("--fault", "", what, "change the strategy first")
        broken = self.check(strategy)
        if broken:
            raise SpecError(self.issue(one) for one in broken)
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
            slow=self.slow,
            documents=self.documents,
        )

    def with_changes(self, changes: Mapping[str, Any], where: str = "--set") -> Problem:
        """Return the problem of the changed scenario; ``{"ep": 16, "cluster.count": 64}``.

        A number of the hardware or software may be a factor on the one in use: ``{"gpu.memory_bandwidth": "x1.2"}``;
        ``transport.num_sms`` is that of the expert transport in use.
        What was measured stays beside it while the run is the same: where only fields that nobody gave, or constants of
        the software and its transports, are set. Another number of the hardware is another machine.
        """
        absolute = of_the_transport(changes, self.strategy.transport)
        absolute = without_factors(absolute, self.machine.provenance, where)
        changed = resolve(with_overrides(self.scenario, absolute, where))
        if COMM_SMS in changes and not (changed.model.moe and sm_driven(changed.strategy.transport)):
            what = f"the legs of transport {changed.strategy.transport} do not depend on its SMs"
            raise SpecError.single(
                f"{where} {COMM_SMS}", "", what, "set a transport that copies by SMs, such as deepep"
            )
        firsts = {path.partition(".")[0] for path in changes if f"strategy.{path.split('.')[-1]}" not in self.assumed}
        same_run = self.measured is not None and firsts <= (
            {*HARDWARE_PREFIXES} - {*MACHINE_PREFIXES} | {"overrides", "calibrations"}
        )
        return changed if same_run or "measured" in firsts else replace(changed, measured=None)

    def issue(self, broken: Broken) -> Issue:
        """A broken rule as a line: where the blamed field was set, what is wrong, what is legal."""
        paths = [f"strategy.{name}" if name in STRATEGY_FIELDS else name for name in broken.fields] or ["strategy"]
        changed = (path for path in paths if self.scenario.where(path).startswith("--"))
        path = next(changed, paths[0])  # what an option has changed is blamed before what stands in the file
        where = self.scenario.where(path)
        violation = broken.violation
        legal = violation.legal
        fix = f"legal: {legal}" if legal and not legal.startswith(("did", "known")) else legal
        shown = "" if where.startswith("--") else path  # an option names its path itself
        return Issue(where, shown, f"{violation.message} [{violation.rule}]", fix)


Named = Problem | str | PathLike[str]
"""A problem, a scenario file, or the name of a shipped scenario."""


def as_problem(given: object, call: str) -> Problem:
    """Return a problem itself, or the one that a file or a name stands for.

    Raises
    ------
    SpecError
        Where it is none of these; ``call`` is what was called with it.
    """
    if isinstance(given, Problem):
        return given
    if isinstance(given, str | PathLike):
        return load(fspath(given))
    what = f"a value of type {type(given).__name__} is no problem"
    fix = "give what moesim.load returns, a scenario file, or the name of a shipped scenario"
    raise SpecError.single(call, "problem", what, fix)


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
    if given.get("routing", "").startswith("histogram:"):
        given["routing"] = histogram_file(scenario)
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
    path = str(_beside(scenario, str(scenario.strategy.schedule), "strategy.schedule"))
    find_schedule(path)
    return path


def histogram_file(scenario: ScenarioSpec) -> str:
    """Return a histogram with its rows, also where the scenario names a file of one number for each expert."""
    routing = str(scenario.strategy.routing)
    name = routing.partition(":")[2]
    if not name or (name[0] in "0123456789.+-" and not name.endswith((".csv", ".txt"))):
        return routing
    where = scenario.where("strategy.routing")
    try:
        text = _beside(scenario, name, "strategy.routing").read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"'{name}' cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SpecError.single(where, "strategy.routing", reason, "a file with rows of each expert") from None
    return "histogram:" + ",".join(text.replace(",", " ").split())


def _beside(scenario: ScenarioSpec, name: str, path: str) -> Path:
    """A file that a scenario names: from its folder, or from the user's where an option names it."""
    return Path(name) if scenario.where(path).startswith("--") else (scenario.folder or Path()) / name
