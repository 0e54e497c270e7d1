"""Why nothing of a search is legal: each rule with a plan that it refuses, and what would be legal instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from moesim.base.errors import Issue, SpecError, Violation
from moesim.constraints import Broken
from moesim.problem import Problem
from moesim.studies.search.answer import Search
from moesim.studies.search.space import Space
from moesim.timeline.schedules import find_schedule
from moesim.workload.stages import place_layers

TRIED = 200
"""Plans of a space that are asked for what refuses them, at most; any that are more are drawn, the same in every run."""


def refusals(found: Search) -> tuple[Issue, ...]:
    """One issue for each rule that refuses plans of a search, the strictest first: a plan that it refuses, and how many."""
    shown: dict[str, Issue] = {}
    for job in found.jobs:
        for problem in _examples(job.space):
            for broken in (*problem.check(), *_of_the_shape(problem)):
                shown.setdefault(broken.violation.rule, problem.issue(broken))
            if found.refused.keys() <= shown.keys():
                break
    return tuple(
        _counted(shown.get(rule, Issue("--vary", "", f"[{rule}]")), count, found.plans_total)
        for rule, count in found.refused.items()
    )


def _of_the_shape(problem: Problem) -> Iterator[Broken]:
    """What refuses the shape of the pipeline, which a search asks before all else; a check asks it last."""
    strategy, model = problem.strategy, problem.model
    schedule = find_schedule(strategy.schedule)
    if schedule.chunks not in (None, strategy.vpp):
        for violation in schedule.constraints(strategy.pp, 1, strategy.vpp):
            yield Broken(("schedule",), violation)
    placed = place_layers(len(model.layers), strategy.pp * strategy.vpp, strategy.layout, model.mtp_layers)
    if isinstance(placed, Violation):
        yield Broken(("layout",), placed)


def _counted(issue: Issue, count: int, total: int) -> Issue:
    return replace(issue, what=f"{issue.what} ({count:,} of {total:,} plans refused by it first)")


def _examples(space: Space) -> Iterator[Problem]:
    """Plans of a space, each as a problem of its own."""
    draw = Random(0)
    places = range(space.size) if space.size <= TRIED else (draw.randrange(space.size) for _ in range(TRIED))
    for place in places:
        changes: dict[str, Any] = {}
        for axis in space.axes:
            place, index = divmod(place, len(axis.values))
            value = axis.values[index]
            changes[axis.name] = list(value) if isinstance(value, tuple) else value
        try:
            yield space.problem.with_changes(changes, "--vary")
        except SpecError:
            continue  # what cannot even be read is among the refused ones
