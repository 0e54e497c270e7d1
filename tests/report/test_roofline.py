"""The picture of a roofline: what it names, and that it is the same each time."""

import re

import pytest

from moesim.report.roofline import COLOURS, SUFFIXES, draw, stages
from moesim.studies.roofline import roofline


@pytest.fixture(scope="module")
def found(small):
    return roofline(small)


def test_the_svg_names_roofs_families_and_what_matters(found, tmp_path):
    draw(found, tmp_path / "a.svg")
    words = re.sub(r"<[^>]+>", " ", (tmp_path / "a.svg").read_text())
    for word in ("bf16 989 TFLOP/s", "HBM 3.35 TB/s", "NVLink", "dense GEMM", "FLOP per HBM byte", found.name):
        assert word in words, word
    longest = max((point for point in found.points if point.intensity), key=lambda point: point.share_of_step)
    assert longest.name in words


def test_the_same_answer_is_the_same_file(found, tmp_path):
    for name in ("a.svg", "b.svg"):
        draw(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix_is_drawn(found, tmp_path, suffix):
    draw(found, tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").stat().st_size > 10_000


def test_every_family_has_a_colour_of_its_own(found):
    assert {point.family for point in found.points} <= set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


@pytest.mark.parametrize(("ranks", "text"), [((0,), "0"), ((0, 1, 2), "0-2"), ((3, 0, 1), "0-1, 3"), ((), "")])
def test_ranks_in_a_row_are_a_span(ranks, text):
    assert stages(ranks) == text
