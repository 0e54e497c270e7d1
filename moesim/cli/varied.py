"""What options change, looked at before anything is computed: values with a meaning, and nothing told twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moesim.base.errors import Collector, Issue, SpecError, did_you_mean
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.problem import Problem

GROUPS = ("cluster", "documents", "measured")
"""Paths whose value is a group: setting one sets all below it."""
TRIED = 50
"""Combinations with other values in which a value is tried that has no meaning alone."""


def varied_problem(
    scenario: str | None,
    model: str | None,
    cluster: str | None,
    changes: list[str] | None,
    vary: Sequence[str] | None,
) -> Problem:
    """Return the problem that is named, with what ``--set`` changes; refuse what each value of ``--vary`` replaces."""
    unreplaced(changes, vary, "--vary")
    return grammar.changed_problem(scenario, model, cluster, changes)


def sound_problem(
    scenario: str | None,
    model: str | None,
    cluster: str | None,
    changes: list[str] | None,
    vary: Sequence[str] | None,
) -> Problem:
    """Return the same for a verb whose ``--vary`` lists values; refuse those that have no meaning."""
    problem = varied_problem(scenario, model, cluster, changes, vary)
    sound([problem], lists(vary), "--vary")
    return problem


def unreplaced(changes: Sequence[str] | None, vary: Sequence[str] | None, option: str) -> None:
    """Refuse ``--set`` of what ``option`` replaces, and paths of it that replace each other."""
    told = grammar.assignments(vary, option)
    apart(told, option)
    problems = Collector()
    for path in grammar.assignments(changes, "--set"):
        over = next((one for one in told if covers(one, path)), None)
        if over is not None:
            problems.add(f"--set {path}", "", f"{option} {over} replaces it", "leave one of the two out")
    problems.raise_if_any()


def apart(paths: Iterable[str], option: str) -> None:
    """Refuse paths of which one sets what another one sets too."""
    problems = Collector()
    for one, other in itertools.combinations(paths, 2):
        if covers(one, other) or covers(other, one):
            problems.add(f"{option} {other}", "", f"sets what {option} {one} sets too", "leave one of the two out")
    problems.raise_if_any()


def covers(path: str, other: str) -> bool:
    """Return whether a path sets all that another one sets.

    Examples
    --------
    >>> covers("cluster", "cluster.count"), covers("strategy.ep", "ep"), covers("cluster.count", "cluster")
    (True, True, False)
    >>> covers("transport", "transport.num_sms")
    False
    """
    one, two = path.removeprefix("strategy."), other.removeprefix("strategy.")
    return one == two or (one in GROUPS and two.startswith(f"{one}."))


def sound(problems: Sequence[Problem], told: Mapping[str, Sequence[str]], option: str) -> None:
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


def sound_changes(problem: Problem, variants: Iterable[Mapping[str, str]], option: str) -> None:
    """Refuse names that nobody knows and values that are none in each of several changes."""
    refused = Collector()
    for changes in variants:
        try:
            sound([problem], {path: [value] for path, value in changes.items()}, option)
        except SpecError as error:
            refused.extend(error.issues)
    refused.raise_if_any()


def lists(vary: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the values that ``--vary`` lists by path, ``auto`` left out."""
    told = grammar.assignments(vary, "--vary")
    return {path: grammar.values(text) for path, text in told.items() if text != "auto"}


def _meaningless(problem: Problem, changes: Mapping[str, Any], option: str) -> list[Issue]:
    """Why changes have no meaning, whatever else the job is."""
    from moesim.fabric.faults import KINDS
    from moesim.studies.faults import NONE, PATH

    others = {path: value for path, value in changes.items() if path != PATH}
    kind = str(changes.get(PATH, NONE)).partition(":")[0]
    if kind not in (*KINDS, "slow", NONE):
        what = f"no kind of fault '{kind}'"
        return [Issue(f"--fault {changes[PATH]}", "", what, did_you_mean(kind, (*KINDS, "slow")))]
    try:
        changed = problem.with_changes(others, option) if others else problem
    except SpecError as error:
        return list(error.issues)
    return [changed.issue(one) for one in changed.check() if one.violation.rule.startswith("known-")]
