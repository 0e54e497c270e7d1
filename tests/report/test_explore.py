"""The panel of a notebook, moved without a browser."""

import sys

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.report.estimate import seconds
from moesim.report.explore import FIELDS, against, explore
from moesim.report.palette import SHORT_NAMES


@pytest.fixture
def panel(small):
    return explore(small)


def test_it_starts_as_the_problem_is(panel, small):
    assert panel.answer.step_time_s == estimate(small).step_time_s
    assert panel.changes == {}
    assert panel.message == ""
    assert set(panel.controls) == set(FIELDS)
    assert seconds(panel.answer.step_time_s) in panel.html
    assert "As it was given." in panel.html


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("ep", 4, {"ep": 4}),
        ("micro_batch", 2, {"micro_batch": 2}),
        ("recompute", ("full",), {"recompute": ["full"]}),
        ("transport", "deepep", {"transport": "deepep"}),
        ("precision", "fp8-blockwise", {"precision": "fp8-blockwise"}),
        ("nodes", 16, {"cluster.count": 16}),
        ("sequence_length", 4096, {"sequence_length": 4096}),
        ("global_batch", 256, {"global_batch": 256}),
    ],
)
def test_a_control_re_estimates(panel, small, name, value, changes):
    panel.controls[name].value = value
    assert panel.changes == changes
    wanted = estimate(small.with_changes(changes))
    assert panel.answer.step_time_s == wanted.step_time_s
    assert panel.answer.memory.peak_bytes == wanted.memory.peak_bytes
    assert seconds(wanted.step_time_s) in panel.html
    assert "against" in panel.html


def test_what_is_illegal_is_said_and_the_last_answer_stays(panel):
    before = panel.answer
    panel.controls["ep"].value = 32
    assert "ep" in panel.message
    assert "Refused:" in panel.html
    assert "legal" in panel.html
    assert panel.answer is before
    assert [str(broken.violation) for broken in panel.problem.check()]
    panel.controls["pp"].value = 1
    assert panel.message == ""
    assert "Refused:" not in panel.html
    assert (panel.answer.strategy["pp"], panel.answer.strategy["ep"]) == (1, 32)


def test_what_is_put_back_is_no_change(panel, small):
    first = panel.controls["ep"].value
    panel.controls["ep"].value = 4
    assert "ep=4: " in panel.html
    panel.controls["ep"].value = first
    assert panel.changes == {}
    assert "As it was given." in panel.html


def test_controls_are_named_in_words_and_shrink_with_their_column(panel):
    named = {name: control.description for name, control in panel.controls.items()}
    assert not [name for name in named.values() if "_" in name]
    assert named["tp"] == "tensor parallel (tp)"
    assert panel.controls["tp"].tooltip == "ranks that share each matrix"
    column, page = panel.widget.children
    assert {one.layout.width for one in column.children[:-1]} == {"auto"}
    assert (page.layout.flex, page.layout.min_width) == ("1 1 480px", "0")


def test_a_model_without_experts_has_no_controls_for_them():
    panel = explore("mb25.11-027")
    assert not {"ep", "etp", "transport", "overlap_ep"} & set(panel.controls)
    assert "ep" in explore("mb25.11-027", fields=("ep", "tp")).controls


def test_chunks_are_those_that_some_number_of_ranks_allows(panel):
    chunks = [value for _, value in panel.controls["vpp"].options]
    assert set(chunks) > {1, 2}
    assert max(chunks) <= 8


def test_what_nobody_touched_follows_the_software(panel):
    panel.controls["pp"].value = 1
    assert panel.controls["schedule"].value == "none"
    assert panel.changes == {"pp": 1}


def test_what_does_not_fit_is_an_answer(small):
    panel = explore(small.with_changes({"gpu.memory_capacity": "2 GiB"}))
    assert panel.message == ""
    assert "Does not fit:" in panel.html


def test_several_at_once_are_estimated_once(panel, monkeypatch):
    calls = []

    def counted(problem):
        calls.append(problem)
        return estimate(problem)

    monkeypatch.setattr("moesim.report.explore.estimate", counted)
    panel.set(pp=1, schedule="none", ep=4)
    assert len(calls) == 1
    assert panel.changes == {"pp": 1, "schedule": "none", "ep": 4}


def test_the_button_takes_it_back(panel):
    panel.controls["ep"].value = 4
    panel.widget.children[0].children[-1].click()
    assert panel.changes == {}
    assert panel.answer.step_time_s == panel.start.step_time_s


@pytest.mark.parametrize(
    ("values", "words"), [({"eq": 4}, "did you mean 'ep'"), ({"ep": 5}, "'5' is not offered; one of 1, 2, 4")]
)
def test_what_is_not_offered_is_refused(panel, values, words):
    with pytest.raises(SpecError, match=words):
        panel.set(**values)


def test_a_notebook_shows_it(panel):
    shown = panel._repr_mimebundle_()
    data = shown[0] if isinstance(shown, tuple) else shown
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "as it is" in repr(panel)


def test_a_difference_names_its_largest_terms(panel):
    panel.controls["ep"].value = 4
    deltas = {name: panel.answer.breakdown_s[name] - value for name, value in panel.start.breakdown_s.items()}
    assert SHORT_NAMES[max(deltas, key=lambda name: abs(deltas[name]))] in against(panel.answer, panel.start)


def test_fields_and_files(small_file):
    panel = moesim.explore(small_file, fields=("ep", "grad_dtype"))
    assert set(panel.controls) == {"ep", "grad_dtype"}
    with pytest.raises(SpecError, match="capacity_factor: has no list of its values"):
        moesim.explore(small_file, fields=("capacity_factor",))


def test_without_ipywidgets_the_extra_is_named(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(SpecError, match=r"explore: needs ipywidgets; pip install 'moesim\[jupyter\]'"):
        moesim.explore(small)
