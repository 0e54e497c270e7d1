"""What holds its shape under the styles of a notebook, and on a phone."""

import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.matrix.answer import answer as matrix_answer
from moesim.matrix.methods import methods
from moesim.matrix.own import own_situations
from moesim.report.matrix_page import page
from moesim.report.rich_html import BODY
from moesim.studies import trace_calibration


def test_a_drawing_keeps_its_height_and_lines_of_a_table_stay_whole(small):
    html = estimate(small).timeline._repr_html_() or ""
    assert 'style="height:' in html  # a style of the element outweighs "svg { height: auto }"
    assert "text-align: left !important" in html
    assert "white-space:pre;" in BODY


def test_the_matrix_scrolls_within_a_phone(small, look):
    columns, rows = list(methods.names())[:24], ["saved-activations", "exposed-communication"]
    found = matrix_answer(own_situations(small), columns, rows, own=small.name)
    shown = page(found)
    assert shown.count("Back to the matrix") == len(found.matrix.cells)
    seen = look(shown)
    assert all(taken <= wanted for taken, wanted in zip(seen.taken, seen.wanted, strict=True))
    assert seen.console == []


def test_the_remedy_of_what_cannot_be_fitted_is_kept(monkeypatch):
    def missing(*_):
        raise SpecError.single("gemm", "", "scipy is not installed", "pip install it")

    monkeypatch.setattr(trace_calibration, "kernel_samples", lambda *_: {"gemm": None})
    monkeypatch.setattr(trace_calibration, "_kernels", missing)
    with pytest.raises(SpecError, match="scipy is not installed; pip install it"):
        trace_calibration.trace_calibration([], None, "h100", "", ("gemm",))
