"""Small searches in many parts, and what must be the same however they are made."""

from collections.abc import Callable
from typing import Any

import pytest

from moesim.problem import Problem
from moesim.studies.search import tasks
from moesim.studies.search.answer import Search
from moesim.studies.search.search import search
from moesim.studies.search.space import Vary

EFFORT = ("plans_bounded", "plans_looked_at", "plans_fitting", "plans_run", "plans_resumed", "seconds", "plans_per_s")
"""What a search tells of its own work, not of the plans."""


@pytest.fixture(scope="session")
def tiny(small: Problem) -> Problem:
    """The small problem on two nodes."""
    return small.with_changes({"cluster.count": 2, "global_batch": 32, "strategy.pp": 2})


@pytest.fixture(scope="session")
def vary() -> Vary:
    """Layouts that come in equal pairs: how a context is split does not matter on one rank."""
    return {
        "micro_batch": [1, 2],
        "tp": [1, 2],
        "ep": [1, 2, 8],
        "schedule": ["1f1b", "zb-h1"],
        "recompute": [[], ["full"]],
        "cp_kind": ["ring", "ulysses"],
    }


@pytest.fixture(scope="session")
def whole(tiny: Problem, vary: Vary) -> Search:
    """The best five of them, from one walk through all."""
    return search(tiny, vary, top=5)


@pytest.fixture
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two combinations of degrees each."""
    monkeypatch.setattr(tasks, "COLUMNS", 2)


@pytest.fixture(scope="session")
def told() -> Callable[[Search], dict[str, Any]]:
    """What an answer says of the plans."""

    def plain(found: Search) -> dict[str, Any]:
        return {name: value for name, value in found.to_dict().items() if name not in EFFORT}

    return plain
