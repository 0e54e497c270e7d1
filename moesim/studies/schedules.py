"""Pipeline schedules beside each other: time, bubble and memory of one problem under each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moesim.base.errors import Collector, SpecError, Violation
from moesim.base.words import changes_in_words
from moesim.cost.blocks import price_blocks
from moesim.cost.memory import RankMemory, rank_memory
from moesim.cost.pipeline import step_times
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Timeline
from moesim.studies.basis import basis
from moesim.timeline.run import Run, run
from moesim.timeline.schedules import find_schedule
from moesim.timeline.step import StepGraph
from moesim.timeline.tasks import NIC
from moesim.timeline.walk import busy_seconds, idle_fraction
from moesim.workload.stages import COUNT_ENDS, FIRST_LARGER
from moesim.workload.strategy import Strategy

OPTION = "--schedule"


@dataclass(frozen=True)
class Wanted:
    """A schedule to compare: its name or file, and the chunks a rank where they were given."""

    name: str
    vpp: int | None = None


@dataclass(frozen=True)
class RankUse:
    """What one pipeline rank does and keeps. ``chunks``: most that wait for their backward at once. [-, s, B]"""

    chunks: int
    busy_s: float
    activations_bytes: float
    weights_bytes: float
    peak_bytes: float


@dataclass(frozen=True)
class Comparison:
    """A schedule of the problem; without numbers where it is ``refused``.

    ``not_offered``: what the framework refuses, though the schedule itself is possible: the numbers are those of a
    framework that had it. ``skewed_step_time_s``: the step where the optimizer of a rank does not wait for the other
    ranks, so that steps follow each other as skewed as the pipeline is; the longest time of a rank from its first task
    to its last. ``copies``: copies of the parameters that the ranks hold together.
    """

    name: str
    vpp: int
    layout: str
    refused: tuple[Violation, ...] = ()
    not_offered: tuple[Violation, ...] = ()
    micro_batches: int | None = None
    copies: int | None = None
    step_time_s: float | None = None
    skewed_step_time_s: float | None = None
    bubble_fraction: float | None = None
    fits: bool | None = None
    ranks: tuple[RankUse, ...] = ()
    basis: dict[str, Any] | None = None
    timeline: Timeline | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, ready for JSON; without the timeline."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "timeline"}
        for name in ("refused", "not_offered"):
            plain[name] = [
                {"rule": violation.rule, "message": violation.message, "legal": violation.legal}
                for violation in getattr(self, name)
            ]
        return plain | {"ranks": [dict(vars(rank)) for rank in self.ranks]}


def wanted(text: str) -> list[Wanted]:
    """Read ``1f1b,interleaved-1f1b:2,slots.csv``: names or files, with the chunks a rank where several are possible."""
    found, problems = [], Collector()
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, colon, count = part.rpartition(":")
        if not colon:
            name, count = part, ""
        if colon and not (count.isdigit() and 1 <= int(count) <= 10**6):
            problems.add(OPTION, "", f"'{count}' is no number of chunks", f"write for example {name}:2")
            continue
        found.append(Wanted(name, int(count) if count else None))
        try:
            find_schedule(name)
        except SpecError as error:
            problems.extend(replace(issue, where=issue.where or OPTION) for issue in error.issues)
    if not found and not problems.issues:
        problems.add(OPTION, "", "names no schedule", "write for example --schedule 1f1b,zb-v")
    problems.raise_if_any()
    return found


def compare(problem: Problem, schedules: Sequence[Wanted], measured_s: float | None = None) -> list[Comparison]:
    """The problem under each schedule, all else as it is.

    Chunks a rank: as given, else the schedule's own number, else the scenario's, else 2. A layout that does not fit the
    stages gives way to the one of the software, then to one that always fits. ``measured_s``: a step to set beside. [s]
    """
    return [_compared(problem, one, measured_s) for one in schedules]


def _compared(problem: Problem, one: Wanted, measured_s: float | None) -> Comparison:
    schedule = find_schedule(one.name)
    vpp = one.vpp or schedule.chunks or max(problem.strategy.vpp, 2)
    changed, open_problem = _placed(problem, one.name, vpp)
    strategy = changed.strategy
    broken = [each.violation for each in open_problem.check(strategy)]
    everything = [each.violation for each in changed.check(strategy)]
    row = Comparison(
        one.name,
        vpp,
        str(strategy.layout),
        refused=tuple(broken),
        not_offered=tuple(violation for violation in everything if violation not in broken),
    )
    if broken:
        return row
    variant = changes_in_words({"schedule": one.name, "vpp": vpp, "layout": str(strategy.layout)})
    found = basis(estimate(open_problem, strategy), measured_s, variant)
    return _measured(open_problem, strategy, replace(row, basis=found))


def _placed(problem: Problem, name: str, vpp: int) -> tuple[Problem, Problem]:
    """The problem with a schedule and a layout that fits it, and the same without the rules of the framework."""
    for layout in _layouts(problem):
        changes = {"schedule": name, "vpp": vpp} | ({} if layout is None else {"layout": layout})
        changed = problem.with_changes(changes, OPTION)
        software = changed.software.model_copy(update={"rules": ()})
        open_problem = replace(changed, software=software)
        if not any(broken.violation.rule == "layers-per-stage" for broken in open_problem.check()):
            break
    return changed, open_problem


def _layouts(problem: Problem) -> Iterator[str | None]:
    yield None
    yield str(problem.software.runtime.placement.value)
    yield COUNT_ENDS
    yield FIRST_LARGER


def _measured(problem: Problem, strategy: Strategy, row: Comparison) -> Comparison:
    plan = problem.plan(strategy)
    blocks = price_blocks(plan)
    times = step_times(plan, blocks)
    result = run(times.graph.graph, times.durations, times.delays)
    memory = rank_memory(plan, blocks)
    chunks = plan.schedule.in_flight(strategy.pp, plan.num_micro_batches, strategy.vpp, plan.extra_warmup)
    busy = busy_seconds(times.graph, result)
    uses = tuple(_use(*one) for one in zip(chunks, busy, memory, strict=True))
    return replace(
        row,
        micro_batches=plan.num_micro_batches,
        copies=plan.schedule.pipelines,
        step_time_s=float(result.makespan),
        skewed_step_time_s=skewed_step(times.graph, result),
        bubble_fraction=float(idle_fraction(times.graph, result)),
        fits=max(use.peak_bytes for use in uses) <= float(problem.machine.gpu.memory_capacity),
        ranks=uses,
        timeline=Timeline(times.graph, result),
    )


def _use(chunks: int, busy_s: float, memory: RankMemory) -> RankUse:
    kept = {name: float(memory.classes[name]) for name in ("activations", "logits", "weights")}
    phases = memory.phases.values()
    most = max(float(phase["activations"] + phase["logits"]) for phase in phases)
    return RankUse(chunks, busy_s, most, kept["weights"], float(memory.peak))


def skewed_step(step: StepGraph, result: Run) -> float:
    """Longest time of a rank from its first forward, with the gathering before it, to its last task. [s]

    Steps that are shifted by it meet on no rank, so it is the time of a step whose optimizer waits for no other rank:
    what zero-bubble schedules reach by validating the global checks of the optimizer afterwards (qi2024, section 4).
    """
    spans = []
    for rank in range(step.num_ranks):
        first = step.tasks_of(rank)[0]
        gathered = [task for task in step.tasks_of(rank, NIC) if task in step.graph.preds[first]]
        before = max((float(result.end[task]) for task in gathered), default=0.0)
        spans.append(float(result.end[step.tasks.rank == rank].max() - result.start[first]) + before)
    return max(spans)
