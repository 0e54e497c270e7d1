"""Calls from Python: what they refuse, and the names they take for problems."""

import math
from pathlib import Path
from typing import Any

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.studies.budget import budget
from moesim.studies.checkpoint import Plan

EP = {"ep": [4, 8]}


def any_(value: Any) -> Any:
    """A value of another type than is asked for."""
    return value


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda z: moesim.diagnose(z, -3), "diagnose: measured: -3 is out of range"),
        (lambda z: moesim.diagnose(z, math.nan), "diagnose: measured: nan"),
        (lambda z: moesim.diagnose(z, 3, "foo"), "no convention of FLOPs 'foo'"),
        (lambda z: moesim.fit(z, -1), "fit: host_memory_bytes: -1"),
        (lambda z: moesim.fit(z, any_("2TB")), "fit: host_memory_bytes: '2TB' is no number"),
        (lambda z: budget(z, -1), "budget: tokens: -1"),
        (lambda z: budget(z, 1e12, goodput=2), "budget: goodput: 2 is out of range; .*at most 1"),
        (lambda z: budget(z, 1e12, deadline_s=0), "budget: deadline_s: 0"),
        (lambda z: moesim.search(z, EP, price=math.nan), "--price: nan"),
        (lambda z: moesim.search(z, EP, price=math.inf), "--price: inf"),
        (lambda z: moesim.search(z, EP, price={"hgx-h100": -1}), "--price: -1"),
        (lambda z: moesim.search(z, EP, workers=any_(1.5)), "search: workers: 1.5 is no whole number"),
        (lambda z: moesim.search(z, EP, top=any_(1.5)), "search: top: 1.5 is no whole number"),
        (lambda z: moesim.search(z, any_({"ep": 8})), r"search: vary\['ep'\]: 8 is no list; write \[8\]"),
        (lambda z: moesim.search(z, EP, pareto="step,memory"), "search: pareto: 'step,memory' is no list"),
        (lambda z: moesim.search(z, EP, pareto=["step"]), "search: pareto: .* is one objective"),
        (lambda z: moesim.search(z, EP, checkpoint="/no/such/a.jsonl"), "--checkpoint: there is no folder '/no/such'"),
        (lambda z: moesim.sweep(z, any_({"ep": 8})), r"sweep: vary\['ep'\]: 8 is no list"),
        (lambda z: moesim.whatif(z, any_(["ep=16"])), "whatif: changes: 'ep=16' is no mapping"),
        (lambda z: moesim.whatif(z, any_("ep=16")), "whatif: changes: 'ep=16' is no list"),
        (lambda z: moesim.estimate(z, measured_s=-1), "estimate: measured_s: -1"),
        (lambda z: moesim.uncertainty(z, any_(150.5)), "uncertainty: samples: 150.5"),
        (lambda z: moesim.checkpoint(z, Plan(restart_s=-5)), "checkpoint: restart_s: -5"),
        (lambda z: moesim.checkpoint(z, Plan(gpu_mttf_s=0)), "checkpoint: gpu_mttf_s: 0"),
        (lambda z: moesim.checkpoint(z, Plan(write_bandwidth=-1)), "checkpoint: write_bandwidth: -1"),
        (lambda z: moesim.checkpoint(z, Plan(writers=any_(2.5))), "checkpoint: writers: 2.5"),
    ],
)
def test_arguments_that_make_no_sense_are_named(small, call, words):
    with pytest.raises(SpecError, match=words):
        call(small)


@pytest.mark.parametrize(
    "call",
    [
        moesim.estimate,
        moesim.fit,
        moesim.checkpoint,
        lambda given: moesim.evaluate(given, []),
        lambda given: moesim.diagnose(given, 20.0),
        lambda given: moesim.search(given, {"ep": [8]}),
        lambda given: moesim.sweep(given, {"ep": [8]}),
        lambda given: moesim.whatif(given, [{"ep": "16"}]),
        lambda given: moesim.uncertainty(given, 100),
        lambda given: budget(given, 1e12),
    ],
)
def test_a_name_stands_for_its_problem_and_nothing_else_does(call):
    assert call("zoo-002") is not None
    with pytest.raises(SpecError, match="problem: a value of type int is no problem"):
        call(3)


def test_a_file_stands_for_its_problem(small_file):
    assert moesim.estimate(Path(small_file)).step_time_s == moesim.estimate(moesim.load(small_file)).step_time_s


def test_the_public_names_are_listed():
    assert set(moesim.__all__) <= set(dir(moesim))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda z: moesim.uncertainty(z, 100), ("analytic", "follows from")),
        (lambda z: moesim.checkpoint(z), ("goodput", "a failure every")),
    ],
)
def test_notebooks_show_answers_as_tables(small, call, words):
    page = call(small)._repr_html_()
    assert all(one in page for one in words)
