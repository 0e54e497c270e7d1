"""What options change, looked at before anything is computed: values with a meaning, and nothing told twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from moesim.base.errors import Collector
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.problem import Problem

GROUPS = ("cluster", "documents", "measured")
"""Paths whose value is a group: setting one sets all below it."""


def varied_problem(
    scenario: str | None,
    model: str | None,
    cluster: str | None,
    changes: list[str] | None,
    vary: Sequence[str] | None,
    *,
    listed: bool = False,
) -> Problem:
    """Return the problem that is named, with what ``--set`` changes; refuse what each value of ``--vary`` replaces.

    `listed`: for a verb that does not look at the values of ``--vary`` itself; those without a meaning are refused here.
    """
    unreplaced(changes, vary, "--vary")
    problem = grammar.changed_problem(scenario, model, cluster, changes)
    if listed:
        from moesim.studies.meaning import sound

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


def lists(vary: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the values that ``--vary`` lists by path, ``auto`` left out."""
    told = grammar.assignments(vary, "--vary")
    return {path: grammar.values(text) for path, text in told.items() if text != "auto"}
