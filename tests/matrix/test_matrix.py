"""The derived matrix: what it must show, that it is stable, and that nothing in it knows the published one."""

import re
from pathlib import Path

import numpy as np
import pytest

import moesim.matrix
from moesim.estimator import estimate
from moesim.matrix import published
from moesim.matrix.answer import answer
from moesim.matrix.bottlenecks import FAMILIES, bottlenecks, rows
from moesim.matrix.cells import restricted
from moesim.matrix.derive import derive
from moesim.matrix.ensemble import GRID, Ensemble, situations
from moesim.matrix.methods import columns, methods
from moesim.matrix.rule import BLANK, DEPENDS, MINUS, PLUS
from moesim.report.matrix_figure import FAMILY_TITLES
from moesim.spec.check import sources
from moesim.timeline.schedules import schedules

PACKAGE = Path(moesim.matrix.__file__).parent


def test_agreement_with_the_published_matrix(matrix):
    found = published.agreement(matrix, published.read())
    assert (found.cells, found.signs) == (540, 191)
    assert found.equal >= 500  # of eight situations; the page has all of them
    assert found.equal_signs >= 165
    assert found.count("opposite") == 0


def test_half_of_the_situations_change_few_cells(matrix):
    names = sorted(
        {
            sample.situation
            for cell in matrix.cells.values()
            for one in cell.against
            for way in one.ways
            for sample in way.samples
        }
    )
    half = restricted(matrix, names[::2])
    changed = [key for key, cell in matrix.cells.items() if half.cells[key].sign != cell.sign]
    assert len(changed) <= 0.06 * len(matrix.cells)  # of eight situations, four are left


def test_all_situations_make_the_matrix(matrix):
    names = {
        sample.situation
        for cell in matrix.cells.values()
        for one in cell.against
        for way in one.ways
        for sample in way.samples
    }
    again = restricted(matrix, names)
    assert {key: cell.sign for key, cell in again.cells.items()} == {
        key: cell.sign for key, cell in matrix.cells.items()
    }


def test_the_derivation_needs_no_published_file(monkeypatch, tmp_path, h100):
    chosen = (["ep", "recompute"], ["dispatch-traffic", "saved-activations"])
    before = answer(h100, *chosen, own="x")
    monkeypatch.setattr(published, "file", lambda: tmp_path / "gone.csv")
    after = answer(h100, *chosen, own="x")
    assert {key: cell.sign for key, cell in after.matrix.cells.items()} == {
        key: cell.sign for key, cell in before.matrix.cells.items()
    }
    assert after.complexity == {}
    assert before.complexity


def test_nothing_in_the_derivation_reads_what_was_published():
    for file in PACKAGE.rglob("*.py"):
        if file.name in ("published.py", "answer.py"):
            continue
        assert "published" not in re.sub(r'"""(.|\n)*?"""', "", file.read_text()), file


@pytest.mark.parametrize("file", sorted((PACKAGE / "bottlenecks").glob("*.py")), ids=lambda file: file.name)
def test_no_bottleneck_names_a_method(file):
    text = file.read_text()
    names = [name for name in columns(second=True) if "-" in name or name in ("megamoe",)]
    assert not [name for name in names if f'"{name}"' in text]
    assert "methods" not in re.findall(r"^from (\S+)", text, re.MULTILINE)
    assert not re.search(r"moesim\.matrix\.methods", text)


@pytest.mark.parametrize("file", sorted((PACKAGE / "methods").glob("*.py")), ids=lambda file: file.name)
def test_no_method_names_a_bottleneck(file):
    text = file.read_text()
    assert not [name for name in rows() if f'"{name}"' in text]
    assert not [name for name in rows() if bottlenecks.get(name).title in text]


@pytest.mark.parametrize(
    "name", ["rule.py", "cells.py", "derive.py", "case.py", "situation.py", "counts.py", "traffic.py"]
)
def test_the_rule_names_neither(name):
    text = (PACKAGE / name).read_text()
    assert not [row for row in rows() if f'"{row}"' in text]
    assert not [one for one in columns(second=True) if f'"{one}"' in text and one not in ("ep", "pp", "cp", "tp")]


def test_families_of_pairs_hold_several_bottlenecks():
    """A pair that answers some families only is no hidden exception for one row."""
    sizes = {family: sum(bottlenecks.get(row).family == family for row in rows()) for family in FAMILIES}
    assert min(sizes.values()) >= 2


def test_the_figure_names_every_family_in_its_order():
    assert tuple(FAMILY_TITLES) == FAMILIES


@pytest.mark.parametrize("name", columns(second=True))
def test_every_method_is_tried_somewhere(name):
    found = methods.get(name)
    assert found.pairs
    assert all(set(pair.families) <= set(FAMILIES) for pair in found.pairs)


def test_titles_are_those_of_the_published_file():
    told = published.read()
    assert {methods.get(name).title for name in columns()} == {method for method, _ in told}
    assert {bottlenecks.get(name).title for name in rows()} | {published.COMPLEXITY} == {row for _, row in told}


def test_the_ensemble_draws_every_value_alike():
    drawn = situations(Ensemble(even=12, skewed=0))
    layers = [len(one.problem.model.layers) for one in drawn]
    assert sorted(layers) == sorted(GRID["num_layers"] * 6)
    assert all(one.strategy.shape for one in drawn)


def test_a_seed_gives_the_same_scenarios():
    first, second, other = (situations(Ensemble(4, 0, seed)) for seed in (3, 3, 4))
    assert [one.name for one in first] == [one.name for one in second] != [one.name for one in other]


@pytest.mark.parametrize(
    ("method", "row", "sign"),
    [
        ("ep", "dispatch-traffic", MINUS),
        ("ep", "persistent-memory", PLUS),
        ("1f1b-v", "retention-imbalance", PLUS),
        ("recompute", "dispatch-traffic", DEPENDS),
        ("hw-map", "persistent-memory", BLANK),
    ],
)
def test_signs_that_follow_from_arithmetic(matrix, method, row, sign):
    assert matrix.sign(method, row) == sign


def test_two_clusters_give_different_matrices_that_can_be_explained(h100, nvl72):
    chosen = (["ep", "block-a2a", "mxfp8"], ["inter-node-traffic", "exposed-communication", "persistent-memory"])
    here, there = derive(h100, *chosen), derive(nvl72, *chosen)
    # 32 ranks of an expert group leave a node of 8 GPUs and stay inside a rack of 64
    assert (here.sign("ep", "inter-node-traffic"), there.sign("ep", "inter-node-traffic")) == (MINUS, BLANK)
    # no H100 multiplies MXFP8
    assert not here.cells["mxfp8", "persistent-memory"].possible
    assert there.sign("mxfp8", "persistent-memory") == MINUS
    exposed = [
        float(np.median(one.cells["ep", "exposed-communication"].against[0].ways[0].samples[0].on))
        for one in (here, there)
    ]
    assert exposed[0] > 2 * exposed[1]


@pytest.mark.parametrize("cluster", ["h100", "nvl72"])
def test_sizes_of_ones_own_scenario_add_up_with_its_estimate(cluster, request):
    situation = request.getfixturevalue(cluster)[0]
    case, _ = situation.case({})
    told = estimate(situation.problem)
    exposed = case.read(bottlenecks.get("exposed-communication").read)
    for name in ("ep", "tp", "cp", "pp", "dp"):
        assert float(exposed[name]()) == pytest.approx(told.exposed_s[name], rel=1e-6, abs=1e-9)
    assert float(case.timed.makespan()) == pytest.approx(told.step_time_s)
    state = [stage[f"{name}_bytes"] for stage in told.memory.stages for name in ("weights", "gradients", "optimizer")]
    kept = case.read(bottlenecks.get("persistent-memory").read)
    assert float(sum(kept.values())) == pytest.approx(sum(state) / situation.strategy.pp)


def test_a_schedule_that_is_registered_later_is_a_column(h100):
    schedules.add("toy-gpipe", schedules.get("gpipe"), summary="GPipe by another name.", source="test")
    try:
        assert "toy-gpipe" in columns(second=True)
        found = derive(h100, ["toy-gpipe"], ["saved-activations"])
        assert found.sign("toy-gpipe", "saved-activations") == MINUS
    finally:
        schedules.remove("toy-gpipe")
        methods.remove("toy-gpipe")


@pytest.mark.parametrize("name", columns(second=True))
def test_sources_are_known(name):
    (entry,) = (one for one in methods.entries() if one.name == name)
    assert entry.source in sources()
