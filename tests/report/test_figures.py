"""Pictures: what they show, that they are the same each time, and that a missing matplotlib is said."""

import re
import sys

import pytest
from matplotlib.patches import Rectangle

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.report import figures
from moesim.report.roofline import draw
from moesim.report.sensitivity import swings
from moesim.studies.roofline import roofline
from moesim.studies.scaling import scaled


@pytest.fixture(scope="module")
def answer(small):
    return estimate(small, measured_s=0.07)


@pytest.fixture(scope="module")
def pictures(small, answer):
    tight = estimate(small.with_changes({"gpu.memory_capacity": "2 GiB"}))
    return {
        "breakdown": figures.breakdown({"here": answer, "tight": tight}),
        "memory": figures.memory(tight),
        "scaling": figures.scaling(scaled(small, [4, 8, 16, 3])),
        "tornado": figures.tornado(answer, 5),
    }


UNITS = {
    "breakdown": "time of a step [s]; line: 90 % interval, diamond: measured",
    "memory": "peak memory [GiB]",
    "scaling": "tokens/s of the whole job",
    "tornado": "step time [s] at both ends of the 90 % interval of each, the others held",
}


@pytest.mark.parametrize("kind", UNITS)
def test_the_axis_has_its_unit_and_the_file_is_the_same_each_time(pictures, kind, tmp_path):
    for name in ("a.svg", "b.svg"):
        pictures[kind].save(tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert UNITS[kind] in text
    assert text == (tmp_path / "b.svg").read_text()


@pytest.mark.parametrize("kind", UNITS)
def test_a_notebook_shows_it(pictures, kind):
    assert pictures[kind]._repr_png_().startswith(b"\x89PNG")


def widths(axes):
    return sum(bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle))


def test_parts_of_a_step_add_up(answer):
    (axes,) = figures.breakdown({"here": answer}).figure.axes
    assert widths(axes) == pytest.approx(answer.step_time_s)


def test_classes_add_up_to_each_peak(answer):
    (axes,) = figures.memory(answer).figure.axes
    peaks = [stage["peak_bytes"] / 2**30 for stage in answer.memory.stages]
    assert widths(axes) == pytest.approx(sum(peaks))


def test_what_does_not_fit_is_marked(pictures, tmp_path):
    pictures["breakdown"].save(tmp_path / "a.svg")
    words = re.sub(r"<[^>]+>", " ", (tmp_path / "a.svg").read_text())
    assert "tight (no fit)" in words
    assert "here (no fit)" not in words


def test_the_widest_swing_is_on_top(answer):
    (axes,) = figures.tornado(answer, 5).figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [what.name for what, low, high in swings(answer, 5) if high > low]
    assert axes.yaxis_inverted()


def test_what_draws_into_a_file_shows_in_a_notebook(small):
    found = roofline(small)
    assert figures.drawn(draw, found)._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(answer, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SpecError, match=r"needs matplotlib; pip install 'moesim\[plot\]'"):
        figures.memory(answer)
