"""Everything about a scenario on one page: a single HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moesim.base.files import write_atomically
from moesim.problem import Problem
from moesim.reading import resource_shares
from moesim.report import timeline_html
from moesim.report.estimate import gibibytes, marks, power_line, seconds
from moesim.report.estimate_html import RESOURCES, parts
from moesim.report.html import Column, Row, page
from moesim.report.methods import method_rows
from moesim.report.palette import class_name
from moesim.report.sensitivity import LEAST, swings
from moesim.result import Constant, Estimate
from moesim.spec.check import Source, sources
from moesim.studies.explain import Explanation, OpRow, explain

CONSTANTS, OPERATIONS, SWINGS = 12, 12, 8
"""Rows of the longest tables."""
PLACES = (
    ("time", "time"),
    ("binds", "what binds"),
    ("timeline", "timeline"),
    ("memory", "memory"),
    ("methods", "methods"),
    ("moves", "what moves the step"),
    ("evidence", "evidence"),
)
"""Sections of the page, and what the links to them say."""
OPERATION = ("size", "call", "calls", "together", "of the step")
"""Columns of the numbers of an operation."""
VISIBLE = 0.005
"""Elasticity from which a constant moves the step by a hundredth of a per cent, as it is written."""
SMALL = 0.01
"""Share of the step from which a resource is listed."""
MEANS = {
    "measured": "read off a measurement of this machine or software",
    "calibrated": "fitted to measurements, their residuals kept",
    "datasheet": "stated by the maker",
    "paper": "stated by somebody else in print",
    "derived": "follows from sourced numbers",
    "assumed": "a guess with a reason",
}
"""What a grade of evidence means."""


@dataclass(frozen=True)
class Report:
    """A scenario and all that is told about it."""

    problem: Problem
    explanation: Explanation
    command: str

    @property
    def answer(self) -> Estimate:
        """Its estimate."""
        return self.explanation.estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return self.explanation.to_dict() | {
            "resources": resource_shares(self.answer.constants),
            "warnings": warnings(self.answer),
            "sources": {key: source.model_dump(exclude_none=True) for key, source in used_sources(self.answer)},
        }


def report(problem: Problem, command: str, measured_s: float | None = None) -> Report:
    """Gather what the page tells.

    Parameters
    ----------
    problem
        The scenario.
    command
        How the page is made again.
    measured_s
        A measured step beside the answer. [s]
    """
    return Report(problem, explain(problem, measured_s), command)


def write_page(path: Path, found: Report) -> None:
    """Write the page, whole or not at all."""
    write_atomically(path, html(found))


def html(found: Report) -> str:
    """The page as text."""
    import moesim

    answer = found.answer
    methods = method_rows(answer.strategy, answer.assumed)
    return page(
        "page",
        title=answer.name,
        places=PLACES,
        about=about(found.problem),
        verdict=verdict(answer),
        warnings=warnings(answer),
        answer=parts(answer),
        timeline=timeline_html.parts(answer.timeline),
        memory_table=_memory_table(answer),
        methods=[row for row in methods if not row.default],
        defaults=[row for row in methods if row.default],
        resources=_resources(answer),
        swings=_swings(answer),
        constants=_constants(answer.constants),
        operation_columns=[Column("operation", False), Column("bound", False), *map(Column, OPERATION)],
        operations=_operations(found.explanation),
        contribution_columns=[
            Column("what", False),
            *map(Column, ("standard error", "of the variance")),
            Column("evidence", False),
        ],
        contributions=_contributions(answer),
        grades=[(grade, meaning) for grade, meaning in MEANS.items() if grade in _grades(answer)],
        sources=used_sources(answer),
        holds=f"The interval holds {answer.interval.holds}. It does not hold {answer.interval.lacks}.",
        command=found.command,
        version=moesim.__version__,
    )


def about(problem: Problem) -> str:
    """What runs where, in a sentence."""
    machine, cluster = problem.machine, problem.scenario.cluster
    return (
        f"{problem.model.name} on {machine.num_gpus:,} {machine.gpu.name} ({cluster.count:,} x {cluster.node}), "
        f"{problem.global_batch:,} sequences of {problem.sequence_length:,} tokens a step, {problem.software.name}."
    )


def verdict(answer: Estimate) -> str:
    """The answer in sentences."""
    resource, share = answer.binding["resource"], answer.binding["share"]
    memory = answer.memory
    ends = f"between {seconds(answer.low_s)} and {seconds(answer.high_s)}"
    lines = [f"One step takes {seconds(answer.step_time_s)}, {ends} with 90 % probability."]
    if answer.measured:
        told = answer.measured["source"]
        source = f" ({told})" if told and not told.startswith("--") else ""
        measured = seconds(answer.measured["step_time_s"])
        lines.append(f"Measured were {measured}{source}: the estimate is {answer.measured['error']:+.1%} off.")
    lines.append(
        f"It hangs most on {RESOURCES.get(resource, resource)}: with 10 % more of it the step would be about "
        f"{share * 10:.0f} % shorter."
    )
    left = memory.capacity_bytes - memory.peak_bytes
    lines.append(
        f"The fullest GPU has {gibibytes(left)} GiB to spare."
        if left >= 0
        else f"It does not fit: the fullest GPU lacks {gibibytes(-left)} GiB."
    )
    return " ".join(lines)


def warnings(answer: Estimate) -> list[str]:
    """What a reader should know before using the numbers."""
    lines = [f"does not fit: {violation.message}; {violation.legal}" for violation in answer.violations]
    if (line := power_line(answer)) is not None:
        lines.append(line)
    lines += marks(answer)
    by_hand = [one.setting or one.path for one in answer.constants if one.by_hand]
    if by_hand:
        lines.append(f"set by hand, taken at their word: {', '.join(by_hand)}")
    if answer.assumed:
        lines.append("nobody gave, a default stands in: " + ", ".join(_field(path) for path in answer.assumed))
    return lines


def _field(path: str) -> str:
    return path.removeprefix("strategy.")


def used_sources(answer: Estimate) -> list[tuple[str, Source]]:
    """Sources of the constants that move the step, the strongest first."""
    known = sources()
    keys = dict.fromkeys(one.source for one in answer.constants if abs(one.elasticity) >= LEAST)
    return [(key, known[key]) for key in keys if key in known]


def _resources(answer: Estimate) -> list[dict[str, Any]]:
    return [
        {"name": RESOURCES.get(name, name), "width": min(100 * share, 100), "share": f"{share:.0%}"}
        for name, share in resource_shares(answer.constants).items()
        if share >= SMALL
    ]


def _swings(answer: Estimate) -> list[dict[str, Any]]:
    """What is uncertain, each as a span of the step on one axis. [per cent of the axis]"""
    found = [one for one in swings(answer, SWINGS) if one[2] > one[1]]
    least = min([low for _, low, _ in found], default=0.0)
    most = max([high for _, _, high in found], default=1.0)
    scale = 100 / (most - least)
    return [
        {
            "name": what.name,
            "left": (low - least) * scale,
            "width": (high - low) * scale,
            "mark": (answer.step_time_s - least) * scale,
            "span": f"{seconds(low)} to {seconds(high)}",
            "evidence": what.evidence,
        }
        for what, low, high in found
    ]


def _constants(constants: Sequence[Constant]) -> list[dict[str, Any]]:
    """Constants with their elasticity as a bar from the middle. [per cent of the axis]"""
    found = [one for one in constants if abs(one.elasticity) >= VISIBLE][:CONSTANTS]
    most = max([abs(one.elasticity) for one in found], default=1.0)
    return [
        {
            "name": one.setting or one.path,
            "left": 50 + min(50 * one.elasticity / most, 0.0),
            "width": 50 * abs(one.elasticity) / most,
            "slower": one.elasticity > 0,
            "moves": f"{one.elasticity:+.2f} %",
            "kind": one.kind,
        }
        for one in found
    ]


def _operations(found: Explanation) -> list[Row]:
    step = found.estimate.step_time_s
    longest = sorted(found.ops, key=lambda one: -one.seconds * one.calls)[:OPERATIONS]
    return [_operation(one, step) for one in longest if one.seconds]


def _operation(one: OpRow, step: float) -> Row:
    total = one.seconds * one.calls
    size = f"{one.flop / 1e9:,.0f} GFLOP" if one.flop else f"{(one.message_bytes or one.hbm_bytes) / 1e6:,.1f} MB"
    cells = [f"{one.name} ({one.where})", one.bound, size, seconds(one.seconds), f"{one.calls:,}", seconds(total)]
    return Row([*cells, f"{total / step:.1%}"])


def _contributions(answer: Estimate) -> list[Row]:
    return [
        Row([one.name, f"{one.log_error:.1%}", f"{one.share:.0%}", one.evidence])
        for one, _, _ in swings(answer, SWINGS)
    ]


def _grades(answer: Estimate) -> set[str]:
    kinds = {one.kind for one in answer.constants if abs(one.elasticity) >= LEAST}
    return kinds | {one.evidence for one in answer.interval.contributions} | {answer.evidence}


def _memory_table(answer: Estimate) -> tuple[list[Column], list[Row]]:
    stages = answer.memory.stages
    names = [name for name in stages[0] if any(stage[name] for stage in stages)]
    columns = [Column("rank"), *(Column(class_name(name.removesuffix("_bytes"))) for name in names)]
    rows = [
        Row([str(rank), *(gibibytes(stage[name]) for name in names)], strong=rank == answer.memory.peak_stage)
        for rank, stage in enumerate(stages)
    ]
    return columns, rows
