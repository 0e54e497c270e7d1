"""Values with a meaning: what is wrong whatever the rest of a job is, is refused before anything is computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moesim.base.errors import Collector, Issue, SpecError
from moesim.problem import Problem
from moesim.studies.faults import NONE, PATH, well_formed

TRIED = 50
"""Combinations with other values in which a value is tried that has no meaning alone."""


def sound(problems: Sequence[Problem], told: Mapping[str, Sequence[Any]], option: str) -> None:
    """Refuse names that nobody knows and values that are none.

    What is only illegal together with the rest of a job is left to the rules. A value is refused where it has no meaning
    in any of the problems, nor beside other values that are told.

    Parameters
    ----------
    problems
        What the values change.
    told
        Values by path.
    option
        That they came from.
    """
    refused: dict[Issue, None] = {}
    for path, found in told.items():
        others = [[(name, one) for one in values] for name, values in told.items() if name != path]
        for value in found:
            beside = [dict(case) for case in itertools.islice(itertools.product(*others), TRIED)]
            cases = [{path: value}, *({path: value} | case for case in beside if case)]
            if all(_meaningless(problem, case, option) for case in cases for problem in problems):
                refused |= dict.fromkeys(_meaningless(problems[0], cases[0], option))
    if refused:
        raise SpecError(refused)


def sound_changes(problem: Problem, variants: Iterable[Mapping[str, Any]], option: str) -> None:
    """Refuse names that nobody knows and values that are none in each of several changes."""
    refused = Collector()
    for changes in variants:
        try:
            sound([problem], {path: [value] for path, value in changes.items()}, option)
        except SpecError as error:
            refused.extend(error.issues)
    refused.raise_if_any()


def _meaningless(problem: Problem, changes: Mapping[str, Any], option: str) -> list[Issue]:
    """Why changes have no meaning, whatever else the job is."""
    others = {path: value for path, value in changes.items() if path != PATH}
    try:
        well_formed(str(changes.get(PATH, NONE)))
        changed = problem.with_changes(others, option) if others else problem
    except SpecError as error:
        return list(error.issues)
    return [changed.issue(one) for one in changed.check() if one.violation.rule.startswith("known-")]
